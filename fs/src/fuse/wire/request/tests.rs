//! Requests as the kernel lays them out, on a machine whose numbers are little-endian.
#![cfg(target_endian = "little")]

use super::*;

/// Fields of a message, in order.
enum Part {
    U32(u32),
    U64(u64),
    Bytes(&'static [u8]),
}

use Part::{Bytes, U32, U64};

fn bytes(parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match part {
            U32(value) => out.extend(value.to_le_bytes()),
            U64(value) => out.extend(value.to_le_bytes()),
            Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
    out
}

const AT: Timestamp = Timestamp { secs: -2, nanos: 3 };

fn attr_change() -> Operation<'static> {
    Operation::Setattr(SetAttr {
        perm: Some(0o4755),
        uid: Some(11),
        gid: Some(12),
        size: Some(13),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(AT)),
        ctime: Some(Timestamp {
            secs: i64::MIN,
            nanos: 999_999_999,
        }),
    })
}

/// Every kind of request: its number, its bytes after the header, what it means.
fn table() -> Vec<(u32, Vec<u8>, Operation<'static>)> {
    let setattr = bytes(&[
        U32(0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x20 | 0x400),
        U32(0),
        U64(99),
        U64(13),
        U64(0),
        U64(5),
        U64((-2i64).cast_unsigned()),
        U64(i64::MIN.cast_unsigned()),
        U32(6),
        U32(3),
        U32(u32::MAX),
        U32(0o104_755),
        U32(0),
        U32(11),
        U32(12),
        U32(0),
    ]);
    let range = |size| bytes(&[U64(0), U64(7), U32(size), U32(0), U64(0), U32(0), U32(0)]);
    vec![
        (1, b"name\0".to_vec(), Operation::Lookup { name: b"name" }),
        (2, bytes(&[U64(3)]), Operation::Forget { count: 3 }),
        (3, bytes(&[U32(0), U32(0), U64(0)]), Operation::Getattr),
        (4, setattr, attr_change()),
        (5, vec![], Operation::Readlink),
        (
            6,
            b"link\0to/here\0".to_vec(),
            Operation::Symlink {
                name: b"link",
                target: b"to/here",
            },
        ),
        (
            8,
            bytes(&[U32(0o100_644), U32(5), U32(0o22), U32(0), Bytes(b"f\0")]),
            Operation::Mknod {
                name: b"f",
                mode: 0o100_644,
                rdev: 5,
                umask: 0o22,
            },
        ),
        (
            9,
            bytes(&[U32(0o755), U32(0o22), Bytes(b"d\0")]),
            Operation::Mkdir {
                name: b"d",
                mode: 0o755,
                umask: 0o22,
            },
        ),
        (
            10,
            b"\xff\n\0".to_vec(),
            Operation::Unlink { name: b"\xff\n" },
        ),
        (11, b"d\0".to_vec(), Operation::Rmdir { name: b"d" }),
        (
            12,
            bytes(&[U64(2), Bytes(b"a\0b\0")]),
            Operation::Rename {
                name: b"a",
                new_parent: 2,
                new_name: b"b",
                flags: 0,
            },
        ),
        (
            13,
            bytes(&[U64(8), Bytes(b"l\0")]),
            Operation::Link {
                node: 8,
                name: b"l",
            },
        ),
        (14, bytes(&[U32(2), U32(0)]), Operation::Open),
        (
            15,
            range(4096),
            Operation::Read {
                offset: 7,
                size: 4096,
            },
        ),
        (
            16,
            bytes(&[
                U64(0),
                U64(7),
                U32(3),
                U32(5),
                U64(0),
                U32(0),
                U32(0),
                Bytes(b"abc"),
            ]),
            Operation::Write {
                offset: 7,
                flags: 5,
                data: b"abc",
            },
        ),
        (17, vec![], Operation::Statfs),
        (18, vec![0; 24], Operation::Release),
        (
            20,
            bytes(&[U64(0), U32(1), U32(0)]),
            Operation::Fsync { data_only: true },
        ),
        (
            21,
            bytes(&[U32(2), U32(1), Bytes(b"user.x\0vv")]),
            Operation::Setxattr {
                name: b"user.x",
                value: b"vv",
                flags: 1,
            },
        ),
        (
            22,
            bytes(&[U32(9), U32(0), Bytes(b"user.x\0")]),
            Operation::Getxattr {
                name: b"user.x",
                room: 9,
            },
        ),
        (
            23,
            bytes(&[U32(9), U32(0)]),
            Operation::Listxattr { room: 9 },
        ),
        (
            24,
            b"user.x\0".to_vec(),
            Operation::Removexattr { name: b"user.x" },
        ),
        (25, vec![0; 24], Operation::Flush),
        (
            26,
            bytes(&[
                U32(7),
                U32(45),
                U32(1 << 17),
                U32(3),
                U32(2),
                Bytes(&[0; 44]),
            ]),
            Operation::Init(Init {
                major: 7,
                minor: 45,
                readahead_bytes_max: 1 << 17,
                flags: 2 << 32 | 3,
            }),
        ),
        (27, vec![0; 8], Operation::Opendir),
        (
            28,
            range(512),
            Operation::Readdir {
                cookie: 7,
                size: 512,
            },
        ),
        (29, vec![0; 24], Operation::Releasedir),
        (
            30,
            bytes(&[U64(0), U32(0), U32(0)]),
            Operation::Fsyncdir { data_only: false },
        ),
        (
            35,
            bytes(&[U32(0x42), U32(0o600), U32(0o77), U32(0), Bytes(b"c\0")]),
            Operation::Create {
                name: b"c",
                mode: 0o600,
                umask: 0o77,
            },
        ),
        (36, bytes(&[U64(4)]), Operation::Interrupt),
        (38, vec![], Operation::Destroy),
        (39, vec![0; 32], Operation::Ioctl),
        (
            42,
            bytes(&[U32(2), U32(0), U64(5), U64(1), U64(6), U64(2)]),
            Operation::BatchForget(Forgets {
                entries: &[
                    5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, //
                    6, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
                ],
            }),
        ),
        (
            43,
            bytes(&[U64(0), U64(1), U64(2), U32(3), U32(0)]),
            Operation::Fallocate {
                offset: 1,
                length: 2,
                mode: 3,
            },
        ),
        (
            44,
            range(512),
            Operation::Readdirplus {
                cookie: 7,
                size: 512,
            },
        ),
        (
            45,
            bytes(&[U64(2), U32(1), U32(0), Bytes(b"a\0b\0")]),
            Operation::Rename {
                name: b"a",
                new_parent: 2,
                new_name: b"b",
                flags: 1,
            },
        ),
        (
            46,
            bytes(&[U64(0), U64(7), U32(3), U32(0)]),
            Operation::Lseek {
                offset: 7,
                whence: 3,
            },
        ),
        (
            51,
            bytes(&[U32(0x42), U32(0o600), U32(0o77), U32(0)]),
            Operation::Tmpfile {
                mode: 0o600,
                umask: 0o77,
            },
        ),
        (47, copy(), copied(false)),
        (53, copy(), copied(true)),
        (9999, b"anything".to_vec(), Operation::Unknown),
    ]
}

fn copy() -> Vec<u8> {
    bytes(&[U64(0), U64(1), U64(2), U64(0), U64(3), U64(4), U64(0)])
}

fn copied(wide: bool) -> Operation<'static> {
    Operation::CopyFileRange {
        offset: 1,
        to: 2,
        to_offset: 3,
        len: 4,
        wide,
    }
}

#[test]
fn every_kind_is_read_as_the_kernel_lays_it_out() {
    for (kind, body, expected) in table() {
        assert_eq!(
            Operation::decode(kind, &body).as_ref(),
            Ok(&expected),
            "{kind}"
        );
    }
}

#[test]
fn a_request_that_ends_early_is_an_error_and_no_panic() {
    for (kind, body, expected) in table() {
        for len in 0..body.len() {
            let short = Operation::decode(kind, &body[..len]);
            // What is not looked at may be missing.
            let harmless = matches!(expected, Operation::Unknown) || kind == 26 && len >= 16;
            assert!(
                short.is_err() || harmless,
                "{kind} of {len} bytes: {short:?}"
            );
        }
    }
}

#[test]
fn lengths_inside_a_request_are_not_believed() {
    let write = bytes(&[
        U64(0),
        U64(7),
        U32(u32::MAX),
        U32(0),
        U64(0),
        U32(0),
        U32(0),
        Bytes(b"abc"),
    ]);
    let xattr = bytes(&[U32(u32::MAX), U32(0), Bytes(b"user.x\0v")]);
    let forgets = bytes(&[U32(u32::MAX), U32(0), U64(1), U64(1)]);
    for (kind, body) in [(16, write), (21, xattr), (42, forgets)] {
        assert_eq!(Operation::decode(kind, &body), Err(Malformed), "{kind}");
    }
}

#[test]
fn forgets_are_pairs() {
    let body = bytes(&[U32(2), U32(0), U64(5), U64(1), U64(6), U64(2)]);
    let Ok(Operation::BatchForget(forgets)) = Operation::decode(42, &body) else {
        panic!("not a batch");
    };
    assert_eq!(forgets.iter().collect::<Vec<_>>(), [(5, 1), (6, 2)]);
}

#[test]
fn the_header_names_who_asks() {
    let mut message = bytes(&[
        U32(45),
        U32(1),
        U64(77),
        U64(9),
        U32(1000),
        U32(100),
        U32(4242),
        U32(0),
        Bytes(b"name\0"),
    ]);
    let (header, body) = Header::split(&message).unwrap();
    assert_eq!((header.opcode, header.unique, header.node), (1, 77, 9));
    assert_eq!(body, b"name\0");
    let context = header.context();
    assert_eq!((context.caller.uid, context.caller.gid), (1000, 100));
    assert_eq!(context.thread, 4242);
    // More bytes than were read, fewer than a header, and no bytes at all.
    message[0] = 46;
    assert_eq!(Header::split(&message), Err(Malformed));
    message[0] = 3;
    assert_eq!(Header::split(&message), Err(Malformed));
    assert_eq!(Header::split(&message[..39]), Err(Malformed));
    assert_eq!(Header::split(&[]), Err(Malformed));
}
