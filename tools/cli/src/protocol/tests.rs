use super::*;

fn samples() -> Vec<Request> {
    let place = Place {
        named: Some("main".to_owned()),
        view: None,
    };
    let dir = WirePath("/mnt/x".into());
    vec![
        Request::Stop { force: true },
        Request::Stats {},
        Request::Mount {
            revision: "main".to_owned(),
            dir: dir.clone(),
            read_only: false,
            namespace: None,
            over: false,
            options: [("threads".to_owned(), 1.into())].into_iter().collect(),
        },
        Request::Unmount {
            target: Target::Dir(dir),
            force: false,
        },
        Request::Unmount {
            target: Target::All,
            force: false,
        },
        Request::BranchCreate {
            name: "a\nb\"".to_owned(),
            from: place.clone(),
        },
        Request::CheckpointCreate {
            branch: place.clone(),
            label: None,
            durable: true,
        },
        Request::Diff {
            a: "main~1".to_owned(),
            b: place,
            patch: true,
            stat: false,
        },
        Request::Boxes(boxes::BoxRequest::Exec {
            name: "web".to_owned(),
            run: boxes::Run {
                argv: vec![
                    path::WireBytes(b"sh".to_vec()),
                    path::WireBytes(Vec::new()),
                    path::WireBytes(b"\xff\n".to_vec()),
                ],
                env: vec![path::WireBytes(b"A=\"".to_vec())],
                terminal: Some((24, 80)),
                ..boxes::Run::default()
            },
            detach: false,
        }),
        Request::Log {},
    ]
}

#[test]
fn every_request_is_one_line_and_comes_back() {
    for request in samples() {
        let line = encode_request(&request).unwrap();
        assert!(!line.contains(&b'\n'));
        assert_eq!(decode_request(&line).unwrap(), request);
    }
}

#[test]
fn nonsense_is_an_answer_and_not_a_panic() {
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    let wrapped = format!(
        r#"{{"version":1,"request":{}}}"#,
        String::from_utf8(deep.clone()).unwrap()
    );
    let cases: Vec<&[u8]> = vec![
        b"",
        b"\0",
        b"\xff\xfe",
        b"null",
        b"7",
        b"{}",
        b"[]",
        br#"{"version":1}"#,
        br#"{"version":1,"request":null}"#,
        br#"{"version":1,"request":"stop"}"#,
        br#"{"version":1,"request":{"explode":{}}}"#,
        br#"{"version":1,"request":{"stop":{"force":1}}}"#,
        br#"{"version":1,"request":{"stop":{},"stats":{}}}"#,
        br#"{"version":1,"request":{"branch_show":{"branch":{"named":7}}}}"#,
        br#"{"version":1,"request":{"stats":{"extra":1}}}"#,
        br#"{"version":-1,"request":{"stats":{}}}"#,
        br#"{"version":1e99,"request":{"stats":{}}}"#,
        br#"{"version":1,"request":{"unmount":{"target":{"dir":"a\u0000"},"force":false}}}"#,
        br#"{"version":1,"request":{"stats":{}}} trailing"#,
        br#"{"version":1,"request":{"stats":{}}"#,
        &deep,
        wrapped.as_bytes(),
    ];
    for case in cases {
        let failure = decode_request(case).unwrap_err();
        assert_eq!(
            failure.kind,
            FailureKind::Daemon,
            "{}",
            String::from_utf8_lossy(&case[..case.len().min(80)])
        );
    }
}

#[test]
fn every_prefix_of_a_request_is_refused() {
    for request in samples() {
        let line = encode_request(&request).unwrap();
        for end in 0..line.len() {
            assert!(decode_request(&line[..end]).is_err());
        }
    }
}

#[test]
fn damaged_requests_do_no_harm() {
    // Every byte replaced by each of a few that matter to a parser: an error or another valid
    // request, never a panic.
    for request in samples() {
        let line = encode_request(&request).unwrap();
        for at in 0..line.len() {
            for byte in [0, b'"', b'{', b'}', b'\\', b'9', 0xff] {
                let mut damaged = line.clone();
                damaged[at] = byte;
                drop(decode_request(&damaged));
            }
        }
    }
}

#[test]
fn another_version_is_told_what_to_do_but_may_stop() {
    let failure = decode_request(br#"{"version":2,"request":{"stats":{}}}"#).unwrap_err();
    assert!(failure.message.contains("speaks protocol 1"), "{failure}");
    let unknown = decode_request(br#"{"version":2,"request":{"teleport":{}}}"#).unwrap_err();
    assert!(unknown.message.contains("speaks protocol 1"), "{unknown}");
    let stop = decode_request(br#"{"version":2,"request":{"stop":{"force":false}}}"#).unwrap();
    assert_eq!(stop, Request::Stop { force: false });
}
