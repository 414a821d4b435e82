//! Differences between layers, on a real store over a base.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod layers;

use std::fs;

use branchpoint_fs::attr::FileKind;
use branchpoint_fs::diff::diff;
use branchpoint_fs::id::LayerId;
use layers::{Fixture, lines};

fn fixture() -> Fixture {
    Fixture::new(|base| {
        fs::create_dir_all(base.join("dir/sub")).unwrap();
        fs::write(base.join("dir/sub/deep"), "deep").unwrap();
        fs::write(base.join("a"), vec![1; 20_000]).unwrap();
        fs::write(base.join("b"), "b").unwrap();
        fs::write(base.join("c"), "c").unwrap();
        fs::hard_link(base.join("c"), base.join("c2")).unwrap();
        std::os::unix::fs::symlink("a", base.join("link")).unwrap();
    })
}

#[track_caller]
fn assert_diff(f: &Fixture, a: LayerId, b: LayerId, expected: &[&str]) {
    assert_eq!(lines(&diff(&f.store, a, b).unwrap()), expected);
}

#[test]
fn every_kind_of_change_is_named_in_both_directions() {
    let f = fixture();
    let main = f.branch("main");
    let mut a = vec![1; 20_000];
    a[10_000] = 2;
    main.write("a", &a);
    main.chmod("b", 0o600);
    main.mv("c", "dir/c");
    main.mkdir("new");
    main.mkdir("new/inner");
    main.write("new/inner/file", b"x");
    main.make("new/pipe", FileKind::Fifo, 0);
    main.rm("link");
    main.mkdir("link");
    main.rm_all("dir/sub");
    let expected = [
        "Modified a",
        "Metadata b",
        "Renamed dir/c from c",
        "Removed dir/sub",
        "Removed dir/sub/deep",
        "TypeChanged link",
        "Added new",
        "Added new/inner",
        "Added new/inner/file",
        "Added new/pipe",
    ];
    // An open head can be looked at as well.
    assert_diff(&f, LayerId::ROOT, f.layer("main"), &expected);
    let frozen = f.checkpoint("main");
    assert_diff(&f, LayerId::ROOT, frozen, &expected);
    let back = [
        "Modified a",
        "Metadata b",
        "Renamed c from dir/c",
        "Added dir/sub",
        "Added dir/sub/deep",
        "TypeChanged link",
        "Removed new",
        "Removed new/inner",
        "Removed new/inner/file",
        "Removed new/pipe",
    ];
    assert_diff(&f, frozen, LayerId::ROOT, &back);
    assert_diff(&f, frozen, frozen, &[]);
}

#[test]
fn a_renamed_directory_is_one_change_and_edits_below_it_have_the_new_path() {
    let f = fixture();
    let main = f.branch("main");
    main.mv("dir", "moved");
    assert_diff(
        &f,
        LayerId::ROOT,
        f.layer("main"),
        &["Renamed moved from dir"],
    );
    main.write("moved/sub/deep", b"deeper");
    main.write("moved/sub/more", b"more");
    assert_diff(
        &f,
        LayerId::ROOT,
        f.layer("main"),
        &[
            "Renamed moved from dir",
            "Modified moved/sub/deep",
            "Added moved/sub/more",
        ],
    );
}

#[test]
fn what_has_the_same_content_in_the_end_is_no_change() {
    let f = fixture();
    let main = f.branch("main");
    main.write("a", &[9; 20_000]);
    main.write("a", &[1; 20_000]);
    main.save("b", b"b");
    main.rm_all("dir");
    main.mkdir("dir");
    main.mkdir("dir/sub");
    main.write("dir/sub/deep", b"deep");
    main.write("temporary", b"t");
    main.rm("temporary");
    main.rm("link");
    main.symlink("link", b"a");
    assert_diff(&f, LayerId::ROOT, f.layer("main"), &[]);
    main.save("b", b"B");
    main.write("dir/sub/deep", b"DEEP");
    assert_diff(
        &f,
        LayerId::ROOT,
        f.layer("main"),
        &["Modified b", "Modified dir/sub/deep"],
    );
}

#[test]
fn hard_links_exchanges_and_attributes() {
    let f = fixture();
    let main = f.branch("main");
    main.link("a", "dir/a2");
    main.rm("c2");
    main.swap("a", "b");
    main.set_xattr("dir", "user.note", b"n");
    assert_diff(
        &f,
        LayerId::ROOT,
        f.layer("main"),
        // One of the two names of the file that was at 'a' is where it went, the other is new.
        &[
            "Renamed a from b",
            "Renamed b from a",
            "Removed c2",
            "Metadata dir",
            "Added dir/a2",
        ],
    );
    // A change of content shows at every name.
    let layer = f.checkpoint("main");
    main.write("dir/a2", b"short");
    assert_diff(
        &f,
        layer,
        f.layer("main"),
        &["Modified b", "Modified dir/a2"],
    );
}

#[test]
fn branches_are_compared_with_each_other() {
    let f = fixture();
    let main = f.branch("main");
    main.write("shared", b"s");
    let side = f.fork("side", "main");
    side.write("side-only", b"1");
    side.write("b", b"side");
    main.write("main-only", b"2");
    main.write("b", b"main");
    assert_diff(
        &f,
        f.layer("main"),
        f.layer("side"),
        &["Modified b", "Removed main-only", "Added side-only"],
    );
}

#[test]
fn truncated_and_regrown_files_are_compared_where_the_cut_was() {
    let f = fixture();
    let main = f.branch("main");
    main.write("a", &[]);
    let zeros = branchpoint_fs::attr::SetAttr {
        size: Some(20_000),
        ..Default::default()
    };
    main.view
        .setattr(branchpoint_fs::attr::Caller::ROOT, main.ino("a"), &zeros)
        .unwrap();
    assert_diff(&f, LayerId::ROOT, f.layer("main"), &["Modified a"]);
    main.write("a", &[1; 20_000]);
    assert_diff(&f, LayerId::ROOT, f.layer("main"), &[]);
}
