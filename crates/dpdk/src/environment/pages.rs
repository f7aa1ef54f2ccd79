//! Huge pages: how many are free, and whether to use them.

use super::HugePages;
use crate::Error;

/// Where Linux tells of huge pages, a folder for each size (Documentation/ABI/testing/
/// sysfs-kernel-mm-hugepages).
const FOLDER: &str = "/sys/kernel/mm/hugepages";

/// MiB of free huge pages of all sizes.
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

/// The arguments for the pages, and what an operator should know about them.
pub(super) fn choose(
    wish: HugePages,
    wanted: usize,
    free: usize,
) -> Result<(Vec<String>, Option<String>), Error> {
    let pages = wanted.div_ceil(2);
    // Without huge pages --in-memory is refused; this is the part of it that is left.
    let system = || ["--no-huge", "--no-shconf"].map(str::to_owned).to_vec();
    match wish {
        HugePages::No => Ok((system(), None)),
        _ if free >= wanted => Ok((vec!["--in-memory".to_owned()], None)),
        HugePages::Need => Err(Error::NoHugePages { wanted, free, pages }),
        HugePages::Auto => Ok((
            system(),
            Some(format!(
                "DPDK runs without huge pages, which costs speed: it wants {wanted} MiB of them \
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
        let (arguments, remark) = choose(HugePages::Auto, 100, 100).unwrap();
        assert_eq!((arguments, remark), (vec!["--in-memory".to_owned()], None));
        let (arguments, remark) = choose(HugePages::Auto, 101, 100).unwrap();
        assert_eq!(arguments[0], "--no-huge");
        assert!(remark.unwrap().contains("vm.nr_hugepages=51"));
    }

    #[test]
    fn who_needs_them_is_told_how_to_get_them() {
        let error = choose(HugePages::Need, 300, 10).unwrap_err().to_string();
        assert!(
            error.contains("vm.nr_hugepages=150") && error.contains("\"huge-pages\": \"none\"")
        );
    }
}
