//! The store under an engine that is cut off at its N-th write or sync, for every N; a daemon that is
//! killed in the middle of a build; a full disk; damaged files.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash {
    mod cut;
    mod damage;
    mod full;
    mod killed;
}
