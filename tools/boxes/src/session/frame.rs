//! What whoever is attached to a session and the daemon say to each other over a stream of their own.
//!
//! ```text
//! frame = kind: u8 | length: u32, little-endian | payload
//! ```
//! Input is sent on credit: at first [`CREDIT_BYTES`], and as many again as each [`Frame::Taken`] says. So a program
//! that does not read its input never keeps a signal from reaching it.

use std::io::{self, Write};

/// How many bytes of input may be on the way.
pub const CREDIT_BYTES: usize = 256 << 10;

/// The longest payload in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 10;

const HEAD_BYTES: usize = 5;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// To the daemon: bytes for the program.
    Input(Vec<u8>),
    /// To the daemon: there will be no more.
    InputEnd,
    /// To the daemon: the terminal has another size.
    Resize {
        /// Lines.
        rows: u16,
        /// Characters a line.
        columns: u16,
    },
    /// To the daemon: a signal for the program's process group.
    Signal(i32),
    /// To the daemon: leave the program running.
    Detach,
    /// From the daemon: what the program wrote to its standard output, or its terminal.
    Output(Vec<u8>),
    /// From the daemon: what it wrote to its standard error.
    Errors(Vec<u8>),
    /// From the daemon: so many bytes of input have reached the program.
    Taken(u32),
    /// From the daemon: the program has ended with this status, and all output has been sent.
    Exit(u8),
    /// From the daemon: somebody else has attached.
    Replaced,
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Self::Input(_) => 1,
            Self::InputEnd => 2,
            Self::Resize { .. } => 3,
            Self::Signal(_) => 4,
            Self::Detach => 5,
            Self::Output(_) => 16,
            Self::Errors(_) => 17,
            Self::Taken(_) => 18,
            Self::Exit(_) => 19,
            Self::Replaced => 20,
        }
    }

    /// Writes the frame; a payload that is too long is split.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let small: Vec<u8>;
        let payload: &[u8] = match self {
            Self::Input(bytes) | Self::Output(bytes) | Self::Errors(bytes) => bytes,
            Self::InputEnd | Self::Detach | Self::Replaced => &[],
            Self::Resize { rows, columns } => {
                small = [rows.to_le_bytes(), columns.to_le_bytes()].concat();
                &small
            }
            Self::Signal(number) => {
                small = number.to_le_bytes().to_vec();
                &small
            }
            Self::Taken(count) => {
                small = count.to_le_bytes().to_vec();
                &small
            }
            Self::Exit(status) => {
                small = vec![*status];
                &small
            }
        };
        let mut rest = payload;
        loop {
            let (now, later) = rest.split_at(rest.len().min(PAYLOAD_BYTES_MAX));
            let length = u32::try_from(now.len()).unwrap_or(u32::MAX);
            let mut message = Vec::with_capacity(HEAD_BYTES + now.len());
            message.push(self.kind());
            message.extend_from_slice(&length.to_le_bytes());
            message.extend_from_slice(now);
            to.write_all(&message)?;
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Puts frames together from the bytes that arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next frame that is complete.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for what is no frame.
    pub fn take(&mut self) -> io::Result<Option<Frame>> {
        let Some((head, rest)) = self.buffer.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let [kind, length @ ..] = *head;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > PAYLOAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = decode(kind, payload).ok_or(io::ErrorKind::InvalidData)?;
        self.buffer.drain(..HEAD_BYTES + length);
        Ok(Some(frame))
    }
}

fn decode(kind: u8, payload: &[u8]) -> Option<Frame> {
    let number = || payload.try_into().ok();
    Some(match (kind, payload) {
        (1, _) => Frame::Input(payload.to_vec()),
        (2, []) => Frame::InputEnd,
        (3, [a, b, c, d]) => Frame::Resize {
            rows: u16::from_le_bytes([*a, *b]),
            columns: u16::from_le_bytes([*c, *d]),
        },
        (4, _) => Frame::Signal(i32::from_le_bytes(number()?)),
        (5, []) => Frame::Detach,
        (16, _) => Frame::Output(payload.to_vec()),
        (17, _) => Frame::Errors(payload.to_vec()),
        (18, _) => Frame::Taken(u32::from_le_bytes(number()?)),
        (19, [status]) => Frame::Exit(*status),
        (20, []) => Frame::Replaced,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_whatever_the_pieces() {
        let frames = [
            Frame::Input(b"abc".to_vec()),
            Frame::InputEnd,
            Frame::Resize {
                rows: 24,
                columns: 300,
            },
            Frame::Signal(15),
            Frame::Detach,
            Frame::Output(Vec::new()),
            Frame::Errors(vec![0; PAYLOAD_BYTES_MAX]),
            Frame::Taken(7),
            Frame::Exit(255),
            Frame::Replaced,
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
        }
        for size in [1, 7, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                decoder.push(piece);
                while let Some(frame) = decoder.take().unwrap() {
                    found.push(frame);
                }
            }
            assert_eq!(found, frames);
        }
    }

    #[test]
    fn what_is_too_long_is_split() {
        let mut bytes = Vec::new();
        Frame::Output(vec![1; PAYLOAD_BYTES_MAX + 1])
            .write(&mut bytes)
            .unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        assert!(decoder.take().unwrap().is_some());
        assert_eq!(decoder.take().unwrap(), Some(Frame::Output(vec![1])));
    }

    #[test]
    fn nonsense_is_an_error() {
        for bytes in [
            &[0, 0, 0, 0, 0][..],
            &[1, 255, 255, 255, 255],
            &[19, 2, 0, 0, 0, 1, 1],
            &[4, 0, 0, 0, 0],
        ] {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            assert!(decoder.take().is_err(), "{bytes:?}");
        }
    }
}
