//! Every parser against truncated, flipped and random bytes: an error at worst, never a panic.

use super::{fdinfo, limits, locks, maps, mountinfo, stat, status};

fn all(text: &[u8]) {
    let _ = stat::parse(text);
    let _ = status::parse(text);
    let _ = limits::parse(text);
    let _ = locks::parse_line(text);
    let _ = maps::parse(text);
    let _ = mountinfo::parse(text);
    let _ = fdinfo::parse(text);
}

fn samples() -> Vec<Vec<u8>> {
    let mut samples: Vec<Vec<u8>> = [
        "stat",
        "status",
        "limits",
        "maps",
        "smaps",
        "mountinfo",
        "fdinfo/0",
    ]
    .iter()
    .map(|name| std::fs::read(format!("/proc/self/{name}")).unwrap())
    .collect();
    samples.push(b"1: -> POSIX  ADVISORY  WRITE 12 00:2a:7 100 199".to_vec());
    samples.push(
        b"pos:\t0\nflags:\t02\ntfd: 5 events: 1d data: 5 pos:0 ino:61af sdev:7\n\
          inotify wd:1 ino:9e sdev:8 mask:8 ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:7e9e\n\
          it_value: (0, 0)\nclockid: 1\neventfd-count: 1\nPid: -1\nsigmask: 0\nit_interval: (\n"
            .to_vec(),
    );
    for sample in &mut samples {
        sample.truncate(3000);
    }
    samples
}

#[test]
fn truncated_anywhere() {
    for sample in samples() {
        for length in 0..sample.len() {
            all(&sample[..length]);
        }
    }
}

#[test]
fn flipped_and_replaced() {
    // xorshift: the same run everywhere.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 33).unwrap()
    };
    let odd = b"\0\xff \n:-().,\\/0f9 (deleted)";
    for sample in samples() {
        for _ in 0..2000 {
            let mut text = sample.clone();
            for _ in 0..=random() % 4 {
                let at = random() % text.len();
                text[at] = odd[random() % odd.len()];
            }
            all(&text);
        }
    }
}

#[test]
fn nothing_but_noise() {
    for byte in 0..=255_u8 {
        all(&[byte; 64]);
    }
    all(b"");
    all(b"18446744073709551616-18446744073709551617 rwxp 0 00:00 0");
    all(b"pos:\t9223372036854775808\nflags:\t0\n");
}
