//! Memory that this process may still use: of the machine, and of its control groups.
//!
//! Memory that is populated beyond the limit of a control group kills the process, without a word
//! from it. So a start compares its need with the limits first.

use std::path::{Path, PathBuf};

/// Memory that is left under a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLeft {
    /// Bytes that can be had, with those that the kernel would take from caches of files.
    pub(crate) bytes: u64,
    /// Limit that applies, for messages.
    pub(crate) limit: String,
}

/// Returns what is left under the narrowest limit of this process, or `None` if none can be read.
pub(crate) fn memory_left() -> Option<MemoryLeft> {
    read(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
}

fn read(proc: &Path, groups: &Path) -> Option<MemoryLeft> {
    let machine = field(&proc.join("meminfo"), "MemAvailable:");
    let machine = machine
        .map(|kibibytes| MemoryLeft { bytes: kibibytes << 10, limit: "this machine".to_owned() });
    let text = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let groups = text.lines().filter_map(|line| {
        // Number, controllers, path; the unified hierarchy has number 0 and no controllers.
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (files, root) = match controllers {
            "" => (&UNIFIED, groups.to_owned()),
            _ if controllers.split(',').any(|it| it == "memory") => {
                (&LEGACY, groups.join("memory"))
            }
            _ => return None,
        };
        files.narrowest(&root, path)
    });
    groups.chain(machine).min_by_key(|left| left.bytes)
}

/// Names of the files of a version of control groups (kernel: cgroup-v2.rst and
/// cgroup-v1/memory.rst in Documentation/admin-guide).
struct GroupFiles {
    limit: &'static str,
    usage: &'static str,
    /// Fields of `memory.stat` that the kernel takes back before it refuses memory.
    reclaimable: &'static [&'static str],
}

const UNIFIED: GroupFiles = GroupFiles {
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: &["inactive_file", "active_file", "slab_reclaimable"],
};
const LEGACY: GroupFiles = GroupFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: &["total_inactive_file", "total_active_file"],
};

impl GroupFiles {
    /// Returns what is left in the group at `path` or the ancestor with the least.
    fn narrowest(&self, root: &Path, path: &str) -> Option<MemoryLeft> {
        let group = root.join(path.trim_start_matches('/'));
        let ancestors = group.ancestors().take_while(|group| group.starts_with(root));
        ancestors.filter_map(|group| self.left(group)).min_by_key(|left| left.bytes)
    }

    /// Returns what is left in one group, or `None` without a limit.
    fn left(&self, group: &Path) -> Option<MemoryLeft> {
        let number = |file| -> Option<u64> {
            std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
        };
        let file: PathBuf = group.join(self.limit);
        let (limit, usage) = (number(self.limit)?, number(self.usage)?);
        let statistics = group.join("memory.stat");
        let reclaimable: u64 =
            self.reclaimable.iter().filter_map(|name| field(&statistics, name)).sum();
        let bytes = limit.saturating_sub(usage.saturating_sub(reclaimable));
        Some(MemoryLeft { bytes, limit: format!("its control group ({})", file.display()) })
    }
}

/// Returns the number behind `name` in a file of lines of a name and a number.
fn field(file: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let words = text.lines().map(str::split_ascii_whitespace);
    words
        .filter_map(|mut words| (words.next()? == name).then(|| words.next()?.parse().ok())?)
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is left with these files below a directory, in MiB, and the limit.
    fn left(files: &[(&str, &str)]) -> Option<(u64, String)> {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let left = read(&root.path().join("proc"), &root.path().join("cgroup"))?;
        let limit = left.limit.replace(&format!("{}/", root.path().display()), "");
        Some((left.bytes >> 20, limit))
    }

    const MACHINE: (&str, &str) =
        ("proc/meminfo", "MemTotal: 4194304 kB\nMemAvailable: 2097152 kB\n");

    #[test]
    fn without_control_groups_the_machine_is_the_limit() {
        assert_eq!(left(&[]), None);
        assert_eq!(left(&[MACHINE]), Some((2048, "this machine".to_owned())));
    }

    #[test]
    fn the_narrowest_group_counts_without_the_caches_of_files() {
        let mebibytes = |number: u64| (number << 20).to_string();
        let stat = format!("anon 5\ninactive_file {}\nactive_file 0\n", mebibytes(10));
        let files = [
            MACHINE,
            ("proc/self/cgroup", "0::/pod/container\n"),
            ("cgroup/pod/container/memory.max", "max\n"),
            ("cgroup/pod/container/memory.current", "1\n"),
            ("cgroup/pod/memory.max", &mebibytes(100)),
            ("cgroup/pod/memory.current", &mebibytes(60)),
            ("cgroup/pod/memory.stat", &stat),
        ];
        let expected = "its control group (cgroup/pod/memory.max)".to_owned();
        assert_eq!(left(&files), Some((50, expected)));
    }

    #[test]
    fn groups_of_the_first_version_are_read_too() {
        let mebibytes = |number: u64| (number << 20).to_string();
        let files = [
            MACHINE,
            ("proc/self/cgroup", "5:cpu:/a\n4:memory:/a\n0::/\n"),
            ("cgroup/memory/a/memory.limit_in_bytes", &mebibytes(64)),
            ("cgroup/memory/a/memory.usage_in_bytes", &mebibytes(80)),
            ("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cgroup/memory/memory.usage_in_bytes", "0\n"),
        ];
        let expected = "its control group (cgroup/memory/a/memory.limit_in_bytes)".to_owned();
        assert_eq!(left(&files), Some((0, expected)));
    }
}
