//! A Kubernetes cluster of one node, for the stories of one test program.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Host, Lab, binary, eventually, repository};

pub mod pod;
pub mod release;

/// Image of the stories: all programs, and a shell.
pub const IMAGE: &str = "localhost/fastlane-stories:1";
/// The same programs in another image, as an update has them.
pub const UPDATED_IMAGE: &str = "localhost/fastlane-stories:2";
/// User of the pods.
pub const POD_USER: u32 = 65532;

/// A running cluster of one node, `node1`. It ends with this process.
#[derive(Debug)]
pub struct Cluster {
    /// Process of `lab/k8s/cluster`. The cluster runs until its standard input is closed.
    process: Child,
    /// Folder of the cluster, which is removed with it.
    folder: PathBuf,
}

impl Cluster {
    /// Returns the cluster of this test program, for one story at a time. Starts it for the first
    /// one. Returns `None` after a skip if its programs are not built.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    #[must_use]
    pub fn get() -> Option<MutexGuard<'static, Self>> {
        static CLUSTER: OnceLock<Option<Mutex<Cluster>>> = OnceLock::new();
        let cluster = CLUSTER.get_or_init(|| Self::start().map(Mutex::new)).as_ref();
        if cluster.is_none() {
            let reason = "the programs of the cluster are not built; run `make k8s`";
            fastlane_testing::skip("kubernetes", reason);
        }
        // A story that failed leaves nothing that the next one cannot remove.
        cluster.map(|cluster| cluster.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn start() -> Option<Self> {
        let present = Command::new(repository("lab/k8s/build"))
            .arg("--present")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !present.is_ok_and(|status| status.success()) {
            return None;
        }
        let directory = TempDir::with_prefix("fastlane-k8s-").expect("a temporary directory");
        let image = directory.path().join("stories.tar");
        build_image(&image, IMAGE, &[]);
        let folder = std::env::temp_dir().join(format!("fastlane-k8s-{}", std::process::id()));
        let mut command = Command::new(repository("lab/k8s/cluster"));
        command.arg("run").arg(&folder).arg(&image);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("python3 is installed");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n", "the cluster does not start; see {}", folder.display());
        Some(Self { process, folder })
    }

    /// Returns the node, with its network namespace.
    ///
    /// # Panics
    /// When the cluster has ended.
    #[must_use]
    pub fn node(&self) -> Host {
        let first =
            std::fs::read_to_string(self.folder.join("init.pid")).expect("the cluster runs");
        Host::of(File::open(format!("/proc/{first}/ns/net")).expect("the cluster runs"))
    }

    /// Joins the node with another host: both have `wire0`, that of the node is for pods.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    #[must_use]
    pub fn wire(&self) -> Option<Lab> {
        let node = self.node();
        // The last story may have failed.
        let _ = node.attempt(&["ip", "link", "delete", "wire0"]);
        Lab::beside(node, "kubernetes", 1)
    }

    /// Returns a command in the cluster's namespaces.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(repository("lab/k8s/cluster"));
        command.arg("enter").arg(&self.folder).args(words).stdin(Stdio::null());
        command
    }

    /// Runs a command in the cluster's namespaces. Returns its standard output, or both outputs if
    /// it fails.
    ///
    /// # Errors
    /// The output.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn attempt(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words).output().expect("the command can be started");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(stdout),
            false => Err(stdout + &String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Runs a command in the cluster's namespaces, which must succeed. Returns its standard output.
    ///
    /// # Panics
    /// When it fails, with its output.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        self.attempt(words).unwrap_or_else(|output| panic!("{words:?}: {output}"))
    }

    /// Runs kubectl, which must succeed. Returns its standard output.
    #[track_caller]
    pub fn kubectl(&self, words: &str) -> String {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.run(&[&["kubectl"], &words[..]].concat())
    }

    /// Reads an object of the API server; null if it does not exist.
    ///
    /// # Panics
    /// When the response is no JSON.
    #[must_use]
    pub fn object(&self, words: &str) -> Value {
        let words: Vec<&str> = words.split_whitespace().collect();
        let words = [&["kubectl", "get", "--output=json"], &words[..]].concat();
        let text = self.attempt(&words).unwrap_or_default();
        serde_json::from_str(if text.is_empty() { "null" } else { &text }).expect("JSON")
    }

    /// Creates or changes objects.
    ///
    /// # Errors
    /// The output of kubectl.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn try_apply(&self, objects: &[Value]) -> Result<String, String> {
        let file = self.file("objects.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(&file, list.to_string()).expect("the directory is ours");
        self.attempt(&["kubectl", "apply", "--filename", &file.display().to_string()])
    }

    /// Creates or changes objects, which must succeed.
    ///
    /// # Panics
    /// When it fails, with the output of kubectl.
    #[track_caller]
    pub fn apply(&self, objects: &[Value]) {
        self.try_apply(objects).unwrap_or_else(|output| panic!("{output}"));
    }

    /// Returns the objects of a file in `k8s/examples`, in the namespace of the stories.
    ///
    /// # Panics
    /// When kubectl does not read it.
    #[track_caller]
    #[must_use]
    pub fn example(&self, name: &str) -> Vec<Value> {
        let file = repository("k8s/examples").join(name).display().to_string();
        let words = ["kubectl", "create", "--dry-run=client", "--output=json", "--filename", &file];
        // One document after the other.
        let text = self.run(&words);
        let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let mut objects: Vec<Value> = values.collect::<Result<_, _>>().expect("JSON");
        for object in &mut objects {
            object["metadata"]["namespace"] = json!(pod::NAMESPACE);
        }
        objects
    }

    /// Imports [`UPDATED_IMAGE`] into the node.
    ///
    /// # Panics
    /// When containerd refuses it.
    #[track_caller]
    pub fn import_updated_image(&self) {
        let (image, marker) = (self.file("updated.tar"), self.file("updated"));
        std::fs::write(&marker, "").expect("the folder is ours");
        build_image(&image, UPDATED_IMAGE, &[&format!("updated={}", marker.display())]);
        let image = image.display().to_string();
        self.run(&["ctr", "--namespace", "k8s.io", "images", "import", &image]);
    }

    /// Returns the process id of a service of the node (`kubelet`, `containerd`), in the cluster's
    /// PID namespace.
    ///
    /// # Panics
    /// When there is no such service.
    #[must_use]
    pub fn service(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join("pids").join(name)).expect("a service")
    }

    /// Kills a service of the node and waits until it is started again.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn kill_service(&self, name: &str) {
        let before = self.service(name);
        self.run(&["kill", "-KILL", &before]);
        eventually("the service is started again", || self.service(name) != before);
    }

    /// Returns the id, as this process sees it, of the process of the cluster with this command
    /// line.
    ///
    /// # Panics
    /// When there is none, or more than one.
    #[track_caller]
    #[must_use]
    pub fn process(&self, words: &str) -> u32 {
        let first = std::fs::read_to_string(self.folder.join("init.pid")).expect("it runs");
        let first: u32 = first.trim().parse().expect("a process id");
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_named = |id: &u32| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.trim_end() == words
        };
        let is_own = |id: &u32| std::iter::successors(Some(*id), parent_of).any(|id| id == first);
        let found: Vec<u32> = ids.filter(is_named).filter(is_own).collect();
        assert_eq!(found.len(), 1, "processes `{words}`: {found:?}");
        found[0]
    }

    /// Kills the process of the cluster whose command line ends with these words.
    ///
    /// # Panics
    /// When there is none, or more than one.
    #[track_caller]
    pub fn kill(&self, words: &str) {
        self.signal("KILL", words);
    }

    /// Sends a signal to the process of the cluster whose command line ends with these words.
    ///
    /// # Panics
    /// When there is none, or more than one.
    #[track_caller]
    pub fn signal(&self, signal: &str, words: &str) {
        // In the cluster's PID namespace there are only its own processes.
        let found = self.run(&["pgrep", "--full", &format!("^[^ ]*{words}$")]);
        let ids: Vec<&str> = found.split_whitespace().collect();
        assert_eq!(ids.len(), 1, "processes `{words}`");
        self.run(&["kill", "-s", signal, ids[0]]);
    }

    /// Returns the path of a file that lasts as long as the cluster.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the end of each log, for messages.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.folder.join("log").join(format!("{name}.log")));
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait(); // it removes what it has made
    }
}

/// Returns the parent of a process (proc_pid_stat(5)).
fn parent_of(id: &u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Packs the programs under test, with the libraries that they need, a shell and `more` files into
/// an image.
fn build_image(image: &Path, name: &str, more: &[&str]) {
    let mut command = Command::new(repository("k8s/image"));
    command
        .arg(image)
        .args([name, "--entrypoint", "/bin/fastlane", "--libraries", "tmp/"])
        .args(more);
    for name in ["fastlane", "macswap", "traffic", "upf", "ledger", "ledger_slow"] {
        command.arg(format!("bin/{name}={}", binary(name).display()));
    }
    command.arg("bin/busybox=/bin/busybox");
    for name in ["sh", "cat", "grep", "sleep", "ls", "ip", "wget"] {
        command.args(["--link", &format!("bin/{name}=busybox")]);
    }
    let done = command.status();
    assert!(done.is_ok_and(|status| status.success()), "{command:?}");
}
