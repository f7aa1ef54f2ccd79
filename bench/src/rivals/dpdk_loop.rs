//! The hand-written loop on DPDK, `c/dpdk_macswap.c`. It is compiled on demand, so that the build
//! does not require DPDK.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use fastlane_measure::program::{Looping, Odometer, Program};

use crate::Result;
use crate::rivals::eal::{CPU, Eal};

const SOURCE: &str = include_str!("../../c/dpdk_macswap.c");
const LOOKUPS: &str = include_str!("../../c/dpdk_lookup.c");
/// Length of a 64-byte Ethernet frame without the check sequence.
const LENGTH: usize = 60;

/// Compiled program; the file is removed on drop.
pub struct Compiled(PathBuf);

impl Compiled {
    /// Compiles the macswap loop for the installed DPDK.
    ///
    /// # Errors
    /// Returns an error if there is no compiler or no DPDK development package.
    pub fn new() -> Result<Self> {
        Self::from_source("dpdk_macswap", SOURCE)
    }

    /// Compiles the lookup loop over tables, `c/dpdk_lookup.c`.
    ///
    /// # Errors
    /// Returns the same errors as [`new`](Self::new).
    pub fn lookups() -> Result<Self> {
        Self::from_source("dpdk_lookup", LOOKUPS)
    }

    fn from_source(name: &str, source: &str) -> Result<Self> {
        let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output();
        let flags = flags.map_err(|error| format!("pkg-config: {error}; install `pkg-config`"))?;
        if !flags.status.success() {
            return Err("no DPDK to compile with: install the package `libdpdk-dev`".into());
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = format!("fastlane-by-hand-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let mut compiler = Command::new("cc")
            .args(["-O3", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-x", "c", "-", "-o"])
            .arg(&path)
            .args(["-x", "none"])
            .args(String::from_utf8(flags.stdout)?.split_whitespace())
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cc: {error}; install `gcc`"))?;
        let input = compiler.stdin.take();
        input.ok_or("no standard input")?.write_all(source.as_bytes())?;
        match compiler.wait()?.success() {
            true => Ok(Self(path)),
            false => Err(format!("c/{name}.c does not compile").into()),
        }
    }

    /// Returns the path of the program.
    #[must_use]
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Hand-written loop on one virtual device.
pub struct ByHand {
    /// The process.
    pub program: Program,
    /// Thread that moves the packets.
    pub thread: u64,
    counter: Counter,
    eal: Eal,
}

impl ByHand {
    /// Starts the loop with bursts of `burst` packets. It first sends `fill` packets.
    ///
    /// # Errors
    /// Returns an error if the program does not start.
    pub fn start(compiled: &Compiled, device: &str, burst: u32, fill: u32) -> Result<Self> {
        let eal = Eal::new();
        let counter = Counter::new(&eal.prefix)?;
        let mut arguments = eal.arguments(device);
        let more = format!("-l {CPU} --no-telemetry -- {} {burst} {fill} {LENGTH}", counter.path());
        arguments.extend(more.split_whitespace().map(str::to_owned));
        let program = Program::start("the loop by hand", &compiled.0, arguments)?;
        let thread = u64::from(program.id());
        Ok(Self { program, thread, counter, eal })
    }

    /// Waits until the loop runs. Returns the process, the thread that moves the packets, and the
    /// EAL directory, which must live as long.
    ///
    /// # Errors
    /// Returns an error if the program ends.
    pub fn process(mut self) -> Result<(Program, u64, Eal)> {
        self.program.wait_for("its loop", |program| program.has_said("ready").then_some(()))?;
        Ok((self.program, self.thread, self.eal))
    }

    /// Waits until the loop moves packets, then stops it until its first slice.
    ///
    /// # Errors
    /// Returns an error if the program ends or moves no packets.
    pub fn looping(mut self) -> Result<Looping<Counter>> {
        let counter = &mut self.counter;
        self.program.wait_for("packets", |_| counter.packets().ok().filter(|&count| count > 0))?;
        Looping::new(self.program, self.thread, self.counter)
    }
}

/// Packet count in a file that another process writes through a mapping.
pub struct Counter {
    path: PathBuf,
    file: File,
}

impl Counter {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("{name}.counter"));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
        file.write_all(&[0; 8])?;
        Ok(Self { path, file })
    }

    fn path(&self) -> std::path::Display<'_> {
        self.path.display()
    }
}

impl Odometer for Counter {
    fn packets(&mut self) -> Result<u64> {
        let mut number = [0; 8];
        self.file.read_exact_at(&mut number, 0)?;
        Ok(u64::from_ne_bytes(number))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
