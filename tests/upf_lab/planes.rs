//! A UPF whose planes are processes of their own, as in containers, and are upgraded in place: one
//! after the other is ended and started from the file of another build.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use fastlane_tests::{Application, Process, binary, eventually};

use crate::site::{SERVER, Site};

/// Running planes.
pub(crate) struct Planes<'a> {
    site: &'a Site,
    configuration: PathBuf,
    session: PathBuf,
    fast: Option<Application>,
    slow: Option<Process>,
    builds: usize,
}

impl<'a> Planes<'a> {
    /// Starts `upf fast` and `upf slow`, and configures Linux as the README says.
    pub(crate) fn start(site: &'a Site) -> Self {
        let (configuration, session) = Application::configure(site.lab(), site.configuration());
        let (fast, slow) = (None, None);
        let mut planes = Self { site, configuration, session, fast, slow, builds: 0 };
        planes.start_fast(&binary("upf"));
        planes.start_slow(&binary("upf"));
        site.upf().run(&["ip", "route", "add", SERVER, "via", "10.6.0.2"]);
        planes
    }

    /// Starts the user plane, and waits until the control plane, if it runs, holds its tables.
    fn start_fast(&mut self, program: &Path) {
        let before = self.holdings();
        let mut command = self.site.upf().command(&[]);
        command.arg(program).arg("fast").arg(&self.configuration);
        self.fast = Some(Application::run(command, self.session.clone()));
        if self.slow.is_some() {
            self.wait_until_held(before);
        }
    }

    /// Starts the control plane, and waits until it holds the tables of the user plane.
    fn start_slow(&mut self, program: &Path) {
        let mut command = self.site.upf().command(&[]);
        command.arg(program).arg("slow").arg(&self.configuration);
        self.slow = Some(Process::start(command));
        self.wait_until_held(0);
    }

    /// Returns how often the control plane has logged that it holds the tables.
    fn holdings(&self) -> usize {
        self.slow.as_ref().map_or(0, |slow| slow.stderr().matches("holding ").count())
    }

    fn wait_until_held(&self, before: usize) {
        eventually("tables are held", || self.holdings() > before);
        self.site.wait_until_ready();
    }

    /// Replaces the control plane by a process of another build.
    pub(crate) fn upgrade_slow(&mut self) {
        let program = self.next_build();
        let ended = self.slow.take().expect("it runs").stop();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        self.start_slow(&program);
    }

    /// Replaces the user plane by a process of another build.
    pub(crate) fn upgrade_fast(&mut self) {
        let program = self.next_build();
        self.fast.take().expect("it runs").stop();
        self.start_fast(&program);
        let log = self.fast.as_ref().expect("it runs").process.stderr();
        let is_taken = log.contains("are taken over from the previous process");
        assert!(is_taken || self.site.example() != "af-xdp", "{log}");
    }

    /// Returns the file of another build of the same release: the program, in a file of its own and
    /// with other octets behind its end.
    fn next_build(&mut self) -> PathBuf {
        self.builds += 1;
        let folder = self.site.file(&format!("build-{}", self.builds));
        std::fs::create_dir(&folder).expect("the folder is new");
        let path = folder.join("upf");
        std::fs::copy(binary("upf"), &path).expect("the program can be copied");
        let mut file: File = OpenOptions::new().append(true).open(&path).expect("it is writable");
        write!(file, "build {}", self.builds).expect("there is room");
        path
    }

    /// Stops the control plane, then the user plane.
    pub(crate) fn stop(mut self) {
        let ended = self.slow.take().expect("it runs").stop();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        self.fast.take().expect("it runs").stop();
    }
}
