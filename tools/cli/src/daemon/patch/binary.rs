//! Content that is no text, in the form that `git apply` takes.
//!
//! Git wants the ids of both versions, which are SHA-1 sums, before it touches a binary file, and the
//! new content as a zlib stream in its own base 85. The stream here is not compressed: a patch is
//! for carrying a change, not for keeping it small.

/// What stands for "no file" in an index line.
const NO_ID: &str = "0000000000000000000000000000000000000000";

/// Bytes in a line of base 85.
const LINE_BYTES: usize = 52;

/// The longest stored block of a zlib stream.
const STORED_BYTES_MAX: usize = 65_535;

const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Returns the index line and the two literals that turn `old` into `new` and back. [`None`] is a file
/// that is not there.
pub(super) fn patch(old: Option<&[u8]>, new: Option<&[u8]>) -> String {
    let id = |side: Option<&[u8]>| side.map_or_else(|| NO_ID.to_owned(), blob_id);
    let mut text = format!("index {}..{}\nGIT binary patch\n", id(old), id(new));
    for side in [new, old] {
        let content = side.unwrap_or_default();
        text.push_str(&format!("literal {}\n", content.len()));
        base85(&zlib(content), &mut text);
        text.push('\n');
    }
    text
}

/// Returns the id that git gives to a file with this content.
fn blob_id(content: &[u8]) -> String {
    let mut object = format!("blob {}\0", content.len()).into_bytes();
    object.extend_from_slice(content);
    sha1(&object)
        .iter()
        .map(|word| format!("{word:08x}"))
        .collect()
}

fn base85(bytes: &[u8], text: &mut String) {
    for line in bytes.chunks(LINE_BYTES) {
        // The first letter is the number of bytes: A to Z are 1 to 26, a to z 27 to 52.
        let count = u8::try_from(line.len()).unwrap_or(0);
        let letter = if count <= 26 {
            b'A' + count - 1
        } else {
            b'a' + count - 27
        };
        text.push(char::from(letter));
        for group in line.chunks(4) {
            let mut word = [0; 4];
            for (to, from) in word.iter_mut().zip(group) {
                *to = *from;
            }
            let mut number = u32::from_be_bytes(word);
            let mut digits = [0u8; 5];
            for digit in digits.iter_mut().rev() {
                let at = usize::try_from(number % 85).unwrap_or(0);
                *digit = DIGITS.get(at).copied().unwrap_or(b'0');
                number /= 85;
            }
            text.extend(digits.map(char::from));
        }
        text.push('\n');
    }
}

/// Returns `content` as a zlib stream of stored blocks.
fn zlib(content: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut rest = content;
    loop {
        let (block, after) = rest.split_at(rest.len().min(STORED_BYTES_MAX));
        stream.push(u8::from(after.is_empty()));
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend_from_slice(block);
        if after.is_empty() {
            break;
        }
        rest = after;
    }
    stream.extend(adler32(content).to_be_bytes());
    stream
}

fn adler32(bytes: &[u8]) -> u32 {
    const PRIME: u32 = 65_521;
    let (mut low, mut high) = (1u32, 0u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % PRIME;
        high = (high + low) % PRIME;
    }
    (high << 16) | low
}

/// SHA-1 as in RFC 3174: an id, not a protection.
fn sha1(bytes: &[u8]) -> [u32; 5] {
    let mut sum = [
        0x6745_2301u32,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    let bits = u64::try_from(bytes.len())
        .unwrap_or(u64::MAX)
        .wrapping_mul(8);
    message.extend(bits.to_be_bytes());
    for block in message.chunks_exact(64) {
        let mut words = Vec::with_capacity(80);
        for word in block.chunks_exact(4) {
            words.push(
                word.iter()
                    .fold(0u32, |word, byte| (word << 8) | u32::from(*byte)),
            );
        }
        for at in 16..80 {
            let back = |steps: usize| words.get(at - steps).copied().unwrap_or(0);
            let word = back(3) ^ back(8) ^ back(14) ^ back(16);
            words.push(word.rotate_left(1));
        }
        let [mut a, mut b, mut c, mut d, mut e] = sum;
        for (round, word) in words.iter().enumerate() {
            let (mix, key) = match round / 20 {
                0 => ((b & c) | (!b & d), 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6u32),
            };
            let next = a
                .rotate_left(5)
                .wrapping_add(mix)
                .wrapping_add(e)
                .wrapping_add(key)
                .wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (total, part) in sum.iter_mut().zip([a, b, c, d, e]) {
            *total = total.wrapping_add(part);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_git() {
        assert_eq!(blob_id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(
            blob_id(b"hello\n"),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
        // The padding has every length once.
        let ids: std::collections::BTreeSet<String> = (0..130)
            .map(|length| blob_id(&vec![b'x'; length]))
            .collect();
        assert_eq!(ids.len(), 130);
    }

    #[test]
    fn a_stream_has_blocks_of_a_limited_length() {
        assert_eq!(zlib(b""), [0x78, 1, 1, 0, 0, 0xff, 0xff, 0, 0, 0, 1]);
        let stream = zlib(&[7; 70_000]);
        assert_eq!(stream.len(), 2 + 5 + 65_535 + 5 + 4_465 + 4);
        assert_eq!(stream[2..7], [0, 0xff, 0xff, 0, 0]);
    }

    #[test]
    fn a_line_begins_with_its_length() {
        let mut text = String::new();
        base85(&[0; 60], &mut text);
        assert_eq!(text, format!("z{}\nH{}\n", "0".repeat(65), "0".repeat(10)));
    }

    #[test]
    fn a_missing_side_has_the_id_of_nothing() {
        let text = patch(None, Some(b"\0"));
        assert!(text.starts_with(&format!("index {NO_ID}..")), "{text}");
        assert!(text.contains("literal 1\n") && text.contains("literal 0\n"));
    }
}
