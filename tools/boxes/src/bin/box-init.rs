//! A box's init as a program of its own, for users of the library. The `branchpoint` program has the same
//! inside.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(u8::try_from(branchpoint_boxes::init::main()).unwrap_or(1))
}
