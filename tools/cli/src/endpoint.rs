//! Where the daemon of a store listens and logs.
//!
//! In the store's directory, which only its owner can enter. A store on a read-only disk has no
//! room for a socket; its daemon uses a private directory among the user's runtime files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, Uid, access};

use crate::failure::{Failure, FailureKind, Result};

const SOCKET: &str = "daemon.sock";
const LOG: &str = "daemon.log";

/// A log longer than this is put aside when a daemon starts.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// What became of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is there.
    Listening,
    /// Somebody removed it.
    SocketGone,
    /// The directory that it was in is no more.
    DirectoryGone,
}

/// The directory in which a daemon and its clients meet.
#[derive(Debug)]
pub(crate) struct Endpoint {
    dir: PathBuf,
    handle: File,
}

impl Endpoint {
    /// Finds the meeting place for `store`, which must exist.
    pub(crate) fn of(store: &Path) -> Result<Self> {
        let meta = fs::metadata(store).map_err(|reason| match reason.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Failure::new(
                FailureKind::NotFound,
                format!("there is no store at '{}'", store.display()),
            )
            .hint("`branchpoint init` makes one; --store or BRANCHPOINT_STORE names another"),
            _ => Failure::io(format!("look at the store '{}'", store.display()), &reason),
        })?;
        let read_only = access(store, AccessFlags::W_OK) == Err(nix::errno::Errno::EROFS);
        let dir = if read_only {
            runtime_dir(&meta)?
        } else {
            store.to_owned()
        };
        let handle = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(&dir)
            .map_err(|reason| Failure::io(format!("enter '{}'", dir.display()), &reason))?;
        Ok(Self { dir, handle })
    }

    /// Returns the path of the log.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.dir.join(LOG)
    }

    /// Opens the log for appending; one that has grown too long is put aside.
    pub(crate) fn open_log(&self) -> io::Result<File> {
        let path = self.log_path();
        if fs::metadata(&path).is_ok_and(|meta| meta.len() > LOG_BYTES_MAX) {
            fs::rename(&path, path.with_extension("log.old"))?;
        }
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
    }

    /// Connects to whoever listens.
    pub(crate) fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(self.socket_path())
    }

    /// Listens, in place of a daemon that is dead. Only for the holder of the store's lock.
    pub(crate) fn listen(&self) -> io::Result<UnixListener> {
        self.remove_socket()?;
        let listener = UnixListener::bind(self.socket_path())?;
        fs::set_permissions(self.socket_path(), fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    /// Says whether clients can still find the socket.
    pub(crate) fn state(&self) -> State {
        if fs::symlink_metadata(self.socket_path()).is_ok() {
            return State::Listening;
        }
        // A directory that was removed has no links any more, its own `.` included.
        match self.handle.metadata() {
            Ok(meta) if meta.nlink() == 0 => State::DirectoryGone,
            _ => State::SocketGone,
        }
    }

    /// Removes the socket. Only for the holder of the store's lock.
    pub(crate) fn remove_socket(&self) -> io::Result<()> {
        match fs::remove_file(self.socket_path()) {
            Err(reason) if reason.kind() != io::ErrorKind::NotFound => Err(reason),
            _ => Ok(()),
        }
    }

    /// A socket's address has room for 107 bytes, a path may have 4,095: so always by way of the
    /// open directory.
    fn socket_path(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/self/fd/{}/{SOCKET}",
            self.handle.as_raw_fd()
        ))
    }
}

/// Returns a private directory for the store on a read-only disk that has the identity of `store`.
fn runtime_dir(store: &fs::Metadata) -> Result<PathBuf> {
    let user = Uid::effective();
    let above = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .unwrap_or_else(std::env::temp_dir)
        .join(format!("branchpoint-{user}"));
    let dir = above.join(format!("{:x}-{:x}", store.dev(), store.ino()));
    for dir in [&above, &dir] {
        let made = DirBuilder::new().mode(0o700).create(dir);
        if let Err(reason) = made
            && reason.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(Failure::io(format!("make '{}'", dir.display()), &reason));
        }
        // Anybody may have made it before us in a directory like /tmp.
        let meta = fs::symlink_metadata(dir)
            .map_err(|reason| Failure::io(format!("look at '{}'", dir.display()), &reason))?;
        if !meta.is_dir() || meta.uid() != user.as_raw() || meta.mode() & 0o077 != 0 {
            return Err(Failure::new(
                FailureKind::Denied,
                format!("'{}' is not a directory of yours alone", dir.display()),
            )
            .hint("remove it, or set XDG_RUNTIME_DIR to a private directory"));
        }
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_longer_than_an_address_works() {
        let root = tempfile::tempdir().unwrap();
        let mut dir = root.path().to_owned();
        for _ in 0..8 {
            dir.push("a-rather-long-name-of-a-directory");
        }
        fs::create_dir_all(&dir).unwrap();
        let endpoint = Endpoint::of(&dir).unwrap();
        let listener = endpoint.listen().unwrap();
        endpoint.connect().unwrap();
        listener.accept().unwrap();
        let mode = fs::metadata(dir.join(SOCKET)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_socket_of_a_dead_daemon_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::of(dir.path()).unwrap();
        drop(endpoint.listen().unwrap());
        assert_eq!(
            endpoint.connect().unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        let _listener = endpoint.listen().unwrap();
        endpoint.connect().unwrap();
    }

    #[test]
    fn what_became_of_a_socket_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("store");
        fs::create_dir(&dir).unwrap();
        let endpoint = Endpoint::of(&dir).unwrap();
        let _listener = endpoint.listen().unwrap();
        assert_eq!(endpoint.state(), State::Listening);
        fs::rename(&dir, root.path().join("moved")).unwrap();
        assert_eq!(endpoint.state(), State::Listening);
        fs::remove_file(root.path().join("moved").join(SOCKET)).unwrap();
        assert_eq!(endpoint.state(), State::SocketGone);
        fs::remove_dir(root.path().join("moved")).unwrap();
        assert_eq!(endpoint.state(), State::DirectoryGone);
    }

    #[test]
    fn a_missing_store_is_named() {
        let failure = Endpoint::of(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(failure.message.contains("/nowhere/at/all"), "{failure}");
        assert!(failure.hint.is_some());
    }
}
