//! The macswap written in C, compiled against the library `fastlane_c`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

const SOURCE: &str = include_str!("../../../apps/macswap-c/macswap.c");
const HEADER: &str = include_str!("../../../crates/capi/include/fastlane.h");

/// Compiled C program; the files are removed on drop.
pub struct Compiled(PathBuf);

impl Compiled {
    /// Compiles `apps/macswap-c` and links it with the library built next to this program.
    ///
    /// # Errors
    /// Returns an error if there is no compiler or no library.
    pub fn new() -> Result<Self> {
        let library = std::env::current_exe()?.with_file_name("libfastlane_c.a");
        if !library.is_file() {
            let remedy = "not built; `make bench` builds it";
            return Err(format!("{}: {remedy}", library.display()).into());
        }
        let folder = std::env::temp_dir().join(format!("fastlane-c-app-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let compiled = Self(folder);
        std::fs::write(compiled.0.join("fastlane.h"), HEADER)?;
        compiled.compile(&library)?;
        Ok(compiled)
    }

    fn compile(&self, library: &Path) -> Result<()> {
        let mut compiler = Command::new("cc")
            .args(["-O3", "-std=c11", "-Wall", "-Wextra", "-Werror", "-x", "c", "-", "-I"])
            .arg(&self.0)
            .arg("-o")
            .arg(self.program())
            .args(["-x", "none"])
            .arg(library)
            .args(["-pthread", "-lm", "-lgcc_s"])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cc: {error}; install `gcc`"))?;
        let input = compiler.stdin.take();
        input.ok_or("no standard input")?.write_all(SOURCE.as_bytes())?;
        match compiler.wait()?.success() {
            true => Ok(()),
            false => Err("apps/macswap-c does not compile".into()),
        }
    }

    /// Returns the path of the program.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.0.join("macswap-c")
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
