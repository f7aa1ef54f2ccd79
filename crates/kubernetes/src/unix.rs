//! Unix sockets between kubelet and the front doors.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint};

/// Listens at a path; what is there is replaced, also what a killed process has left.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListenerStream> {
    let failed =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    UnixListener::bind(path).map(UnixListenerStream::new).map_err(failed)
}

/// Connects to a service at a path.
pub(crate) async fn connect(path: &Path) -> Result<Channel, String> {
    let failed = |error: &dyn std::error::Error| {
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        format!("{}: {reason}", path.display())
    };
    let target = path.to_owned();
    let open = tower::service_fn(move |_: tonic::codegen::http::Uri| {
        let target: PathBuf = target.clone();
        async move { UnixStream::connect(target).await.map(TokioIo::new) }
    });
    // The name does not matter: the connector knows the path.
    let endpoint = Endpoint::from_static("http://localhost");
    endpoint.connect_with_connector(open).await.map_err(|error| failed(&error))
}

/// Returns what tells a socket from a later one at the same path; `None` if there is none.
pub(crate) fn identity(path: &Path) -> Option<(u64, i64, i64)> {
    let status = fs::symlink_metadata(path).ok()?;
    Some((status.ino(), status.ctime(), status.ctime_nsec()))
}
