//! TCP and UDP on loopback: rebuilt in a network namespace of their own, like a box's.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::{CloneFlags, unshare};

use super::super::sys;
use super::{Guest, Here, rebuilt, until};
use crate::report::Verdict;

/// A place with a network namespace whose loopback interface is up.
fn elsewhere() -> Here {
    let namespace = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        super::sys::loopback_up();
        OwnedFd::from(std::fs::File::open("/proc/thread-self/ns/net").unwrap())
    });
    Here {
        network: Some(namespace.join().unwrap()),
        ..Here::new()
    }
}

fn local() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()
}

fn stream(file: &OwnedFd) -> TcpStream {
    let stream = TcpStream::from(file.try_clone().unwrap());
    stream
        .set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .unwrap();
    stream
}

fn exactly(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn refused(report: &crate::report::Report) -> bool {
    report
        .lines
        .iter()
        .any(|line| line.verdict == Verdict::Refused)
}

#[test]
fn a_connection_with_both_queues() {
    let _turn = super::turn();
    let (listener, port) = local();
    let (mut client, mut server) = (connect(port), listener.accept().unwrap().0);
    client.set_nodelay(true).unwrap();
    client.write_all(b"to the server").unwrap();
    server.write_all(b"to the client").unwrap();
    let waiting = |file: &TcpStream| sys::ioctl_get::<i32>(file, libc::FIONREAD).unwrap();
    until("both have arrived", || {
        waiting(&client) == 13 && waiting(&server) == 13
    });
    let guest = Guest::new(&[(10, &listener), (11, &client), (12, &server)]);
    let (captured, report) = guest.capture(&Here::new());
    assert!(report.lines.is_empty(), "{report:?}");
    let addresses = (client.local_addr().unwrap(), server.local_addr().unwrap());
    let check = |mut client: TcpStream, mut server: TcpStream| {
        assert_eq!(client.local_addr().unwrap(), addresses.0);
        assert_eq!(server.local_addr().unwrap(), addresses.1);
        assert!(client.nodelay().unwrap());
        assert_eq!(exactly(&mut client, 13), b"to the client");
        assert_eq!(exactly(&mut server, 13), b"to the server");
        for round in 0..20_u8 {
            client.write_all(&[round; 1000]).unwrap();
            assert_eq!(exactly(&mut server, 1000), [round; 1000]);
            server.write_all(&[round; 500]).unwrap();
            assert_eq!(exactly(&mut client, 500), [round; 500]);
        }
        drop(client);
        assert_eq!(server.read(&mut [0; 10]).unwrap(), 0);
    };
    // Two siblings, each in its own network, and the original goes on as well.
    let (one, two) = (elsewhere(), elsewhere());
    let (first, a) = rebuilt(&captured, &one);
    let (second, b) = rebuilt(&captured, &two);
    drop((a, b));
    for files in [first, second] {
        let reuse = |file: &dyn AsFd| {
            let (level, name) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
            sys::getsockopt::<i32>(file.as_fd(), level, name).unwrap()
        };
        // The standard library sets it for listeners, and the kernel gives it to what they accept.
        for fd in [10, 11, 12] {
            assert_eq!(reuse(&files[&fd]), i32::from(fd != 11), "{fd}");
        }
        let listener = TcpListener::from(files[&10].try_clone().unwrap());
        assert_eq!(listener.local_addr().unwrap().port(), port);
        let (client, server) = (stream(&files[&11]), stream(&files[&12]));
        drop(files);
        check(client, server);
    }
    drop(guest);
    check(client, server);
}

#[test]
fn more_than_the_receiver_takes() {
    let _turn = super::turn();
    let (listener, port) = local();
    let (client, server) = (connect(port), listener.accept().unwrap().0);
    client.set_nonblocking(true).unwrap();
    let mut sent = Vec::new();
    let mut writer = &client;
    // Until neither queue takes any more.
    for round in 0_u32.. {
        let block: Vec<u8> = (0..10_000_u32)
            .map(|n| (n ^ round).to_le_bytes()[0])
            .collect();
        match writer.write(&block) {
            Ok(count) => sent.extend_from_slice(&block[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    let guest = Guest::new(&[(11, &client), (12, &server)]);
    let (captured, report) = guest.capture(&Here::new());
    assert!(!refused(&report), "{report:?}");
    let here = elsewhere();
    let (files, again) = rebuilt(&captured, &here);
    drop(again);
    let mut server = stream(&files[&12]);
    assert_eq!(exactly(&mut server, sent.len()), sent);
    let mut client = stream(&files[&11]);
    client.set_nonblocking(false).unwrap();
    client.write_all(b"and on").unwrap();
    assert_eq!(exactly(&mut server, 6), b"and on");
}

#[test]
fn half_closed_and_closed() {
    let _turn = super::turn();
    let (listener, port) = local();
    let (client, server) = (connect(port), listener.accept().unwrap().0);
    let (alone, closed) = (connect(port), listener.accept().unwrap().0);
    (&client).write_all(b"last").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    (&closed).write_all(b"bye").unwrap();
    drop(closed);
    let state = |stream: &TcpStream| {
        sys::getsockopt_bytes(stream, libc::IPPROTO_TCP, libc::TCP_INFO).unwrap()[0]
    };
    until("the ends arrive", || {
        state(&server) == 8 && state(&alone) == 8 && state(&client) == 5
    });
    let guest = Guest::new(&[(11, &client), (12, &server), (13, &alone)]);
    let (captured, report) = guest.capture(&Here::new());
    assert!(report.lines.is_empty(), "{report:?}");
    let here = elsewhere();
    let (files, again) = rebuilt(&captured, &here);
    drop(again);
    let mut all = String::new();
    stream(&files[&12]).read_to_string(&mut all).unwrap();
    assert_eq!(all, "last");
    stream(&files[&12]).write_all(b"answer").unwrap();
    assert_eq!(exactly(&mut stream(&files[&11]), 6), b"answer");
    all.clear();
    stream(&files[&13]).read_to_string(&mut all).unwrap();
    assert_eq!(all, "bye");
}

#[test]
fn connections_that_wait_to_be_accepted() {
    let _turn = super::turn();
    let (listener, port) = local();
    let (first, second) = (connect(port), connect(port));
    let guest = Guest::new(&[(10, &listener), (11, &first), (12, &second)]);
    let (captured, report) = guest.capture(&Here::new());
    assert!(report.lines.is_empty(), "{report:?}");
    let here = elsewhere();
    let (files, again) = rebuilt(&captured, &here);
    drop(again);
    let listener = TcpListener::from(files[&10].try_clone().unwrap());
    let mut ports = Vec::new();
    for _ in 0..2 {
        ports.push(listener.accept().unwrap().1.port());
    }
    let mut wanted: Vec<u16> = [&first, &second]
        .map(|stream| stream.local_addr().unwrap().port())
        .to_vec();
    ports.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(ports, wanted);
    // With data on the way it cannot be kept, and says so.
    (&first).write_all(b"too early").unwrap();
    assert!(refused(&guest.capture(&Here::new()).1));
}

#[test]
fn a_peer_outside_means_a_reset() {
    let _turn = super::turn();
    let (listener, port) = local();
    let (client, server) = (connect(port), listener.accept().unwrap().0);
    (&server).write_all(b"before").unwrap();
    until("it arrives", || {
        sys::ioctl_get::<i32>(&client, libc::FIONREAD).unwrap() == 6
    });
    let guest = Guest::new(&[(10, &client)]);
    let (captured, report) = guest.capture(&Here::new());
    assert_eq!(report.lines[0].verdict, Verdict::Degraded, "{report:?}");
    let here = elsewhere();
    let (files, again) = rebuilt(&captured, &here);
    drop(again);
    let mut client = stream(&files[&10]);
    assert_eq!(exactly(&mut client, 6), b"before");
    let error = client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn datagrams_wait_with_their_senders() {
    let _turn = super::turn();
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (receiver, sender, gone) = (bind(), bind(), bind());
    let to = receiver.local_addr().unwrap();
    sender.send_to(b"first", to).unwrap();
    gone.send_to(b"", to).unwrap();
    sender.send_to(b"third", to).unwrap();
    sender.connect(to).unwrap();
    let from = (sender.local_addr().unwrap(), gone.local_addr().unwrap());
    drop(gone);
    let guest = Guest::new(&[(10, &receiver), (11, &sender)]);
    let (captured, report) = guest.capture(&Here::new());
    assert!(report.lines.is_empty(), "{report:?}");
    let here = elsewhere();
    let (files, again) = rebuilt(&captured, &here);
    drop(again);
    let again = UdpSocket::from(files[&10].try_clone().unwrap());
    let mut buffer = [0; 100];
    for (text, from) in [(&b"first"[..], from.0), (b"", from.1), (b"third", from.0)] {
        let (length, who) = again.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], who), (text, from));
    }
    let connected = UdpSocket::from(files[&11].try_clone().unwrap());
    connected.send(b"on").unwrap();
    assert_eq!(again.recv_from(&mut buffer).unwrap(), (2, from.0));
}

#[test]
fn netlink_sockets_keep_their_address() {
    let _turn = super::turn();
    let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE).unwrap();
    let mut address = 16_u16.to_ne_bytes().to_vec();
    address.extend_from_slice(&[0; 10]);
    sys::address(&socket, sys::With::Bind, &address).unwrap();
    let guest = Guest::new(&[(10, &socket)]);
    let here = elsewhere();
    let (files, _) = rebuilt(&guest.taken(&Here::new()), &here);
    let name = |file: &OwnedFd| sys::name(file.as_fd(), sys::Which::Own).unwrap();
    assert_eq!(name(&files[&10]), name(&socket));
}
