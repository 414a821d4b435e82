//! Forwarded ports.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use branchpoint_boxes::cgroup::Limits;
use branchpoint_boxes::port::Forward;

use crate::support::{Bench, LIMIT, build, can_box, until};

/// Asks for `/` and returns what comes.
fn get(address: SocketAddr) -> String {
    let mut text = String::new();
    let Ok(mut stream) = TcpStream::connect(address) else {
        return text;
    };
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let asked = stream.write_all(b"GET /name HTTP/1.0\r\n\r\n");
    if asked.is_ok() {
        drop(stream.read_to_string(&mut text));
    }
    text
}

#[test]
fn a_server_in_the_box_answers_on_the_host() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let forward = Forward::listen(any, 8080, bench.instance.network()).unwrap();
    assert_eq!(get(forward.address()), "", "nobody listens in the box yet");
    let serve = |name: &str| {
        bench.shell(&format!(
            "mkdir -p /srv/{name}; cd /srv/{name}; echo i am {name} > name; \
             exec python3 -m http.server 8080 --bind 127.0.0.1"
        ))
    };
    serve("first");
    until("the server answers", || {
        get(forward.address()).contains("i am first")
    });
    // Many at once.
    let asking: Vec<_> = (0..16)
        .map(|_| {
            let address = forward.address();
            std::thread::spawn(move || get(address))
        })
        .collect();
    for one in asking {
        assert!(one.join().unwrap().contains("i am first"));
    }
    // Another instance of the box has the same port to itself.
    let sessions = Arc::new(branchpoint_boxes::session::Sessions::default());
    let second = build(&bench.root, &sessions, Limits::default()).unwrap();
    let script = "mkdir -p /srv/b; cd /srv/b; echo i am second > name; \
                  exec python3 -m http.server 8080 --bind 127.0.0.1";
    let command = crate::support::command(&["sh", "-c", script]);
    let kind = branchpoint_boxes::session::Kind::Pipes { input: false };
    sessions.open(&second, &command, kind).unwrap();
    forward.lead_to(Some(second.network())).unwrap();
    until("the other server answers", || {
        get(forward.address()).contains("i am second")
    });
    let busy = Forward::listen(forward.address(), 1, second.network().as_fd()).unwrap_err();
    assert!(busy.to_string().contains("listen at"), "{busy}");
    let address = forward.address();
    drop(forward);
    assert!(TcpStream::connect(address).is_err());
}
