//! Huge pages: the free ones, and the decision whether to use them.

use super::HugePages;
use crate::Error;

/// Directory of the kernel's huge page counters, with one folder per size
/// (Documentation/ABI/testing/sysfs-kernel-mm-hugepages).
const FOLDER: &str = "/sys/kernel/mm/hugepages";

/// Returns the free huge pages of all sizes in MiB.
pub(super) fn free() -> usize {
    let folders = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let free = folders.filter_map(|folder| {
        let name = folder.file_name().into_string().ok()?;
        let size: usize = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let pages = std::fs::read_to_string(folder.path().join("free_hugepages")).ok()?;
        Some(size * pages.trim().parse::<usize>().ok()?)
    });
    free.sum::<usize>() / 1024
}

/// Returns the EAL arguments for the pages, and a warning for the operator.
pub(super) fn choose(
    policy: HugePages,
    wanted: usize,
    free: usize,
) -> Result<(Vec<String>, Option<String>), Error> {
    let pages = wanted.div_ceil(2);
    // EAL refuses --in-memory without huge pages; --no-shconf is the part of it that remains.
    let no_huge = || ["--no-huge", "--no-shconf"].map(str::to_owned).to_vec();
    match policy {
        HugePages::None => Ok((no_huge(), None)),
        _ if free >= wanted => Ok((vec!["--in-memory".to_owned()], None)),
        HugePages::Required => Err(Error::NoHugePages { wanted, free, pages }),
        HugePages::Auto => Ok((
            no_huge(),
            Some(format!(
                "DPDK runs without huge pages, which costs speed: it needs {wanted} MiB of them \
                 and {free} MiB are free; `sysctl -w vm.nr_hugepages={pages}` reserves them, \
                 \"huge-pages\": \"none\" \
                 accepts it"
            )),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_used_when_enough_are_free() {
        let (arguments, warning) = choose(HugePages::Auto, 100, 100).unwrap();
        assert_eq!((arguments, warning), (vec!["--in-memory".to_owned()], None));
        let (arguments, warning) = choose(HugePages::Auto, 101, 100).unwrap();
        assert_eq!(arguments[0], "--no-huge");
        assert!(warning.unwrap().contains("vm.nr_hugepages=51"));
    }

    #[test]
    fn required_huge_pages_that_are_missing_are_an_error_with_the_remedy() {
        let error = choose(HugePages::Required, 300, 10).unwrap_err().to_string();
        assert!(
            error.contains("vm.nr_hugepages=150") && error.contains("\"huge-pages\": \"none\"")
        );
    }
}
