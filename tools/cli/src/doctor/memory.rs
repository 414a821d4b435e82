//! What finding the changed pages of a process needs.

use super::{Ability, Finding, State, sys};

pub(super) fn examine() -> Vec<Finding> {
    let write_protect = Ability {
        id: "userfaultfd_wp_async",
        used_for: "finding the pages that a process wrote since its last checkpoint",
        without: "soft-dirty bits, or else comparing all pages",
    };
    let scan = Ability {
        id: "pagemap_scan",
        used_for: "asking for the written pages and watching them again in one call",
        without: "soft-dirty bits, or else comparing all pages",
    };
    let soft_dirty = Ability {
        id: "soft_dirty",
        used_for: "finding written pages on kernels before 6.7",
        without: "asynchronous write protection, or else comparing all pages",
    };
    vec![
        write_protect.tried(sys::probe_write_protect()),
        scan.tried(sys::probe_pagemap_scan()),
        match sys::probe_soft_dirty() {
            Ok(true) => soft_dirty.found(State::Present, "a written page was marked"),
            Ok(false) => soft_dirty.found(State::Missing, "a written page was not marked"),
            Err(reason) => soft_dirty.found(State::Missing, reason.to_string()),
        },
    ]
}
