//! The pod of a process, by its control groups.

/// Maximum length of a list of control groups that is parsed, in bytes. A page suffices for all
/// hierarchies of version 1.
const MAX_TEXT: usize = 1 << 16;

/// Returns the UID of the pod in which a process is, from the contents of its `/proc/PID/cgroup`.
/// Returns `None` if it is in no pod, or if two hierarchies name different ones.
///
/// A process may create control groups below its own one and name them as it likes. So the first
/// pod on the way from the root counts.
pub(crate) fn pod_of(cgroups: &str) -> Option<String> {
    let cgroups = cgroups.get(..cgroups.len().min(MAX_TEXT))?;
    // hierarchy:controllers:path (cgroups(7))
    let paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut pods = paths.filter_map(pod_of_path);
    let first = pods.next()?;
    pods.all(|pod| pod == first).then_some(first)
}

/// Returns the UID of the first pod of a path:
///
/// ```text
/// /kubepods/burstable/podUID/CONTAINER
/// /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/CONTAINER
/// ```
///
/// The second is that of systemd, with `_` in the UID for `-`.
fn pod_of_path(path: &str) -> Option<String> {
    let mut names = path.split('/').skip_while(|name| !is_root_of_pods(name)).skip(1);
    let uid = names.by_ref().take(2).find_map(|name| {
        let name = name.strip_suffix(".slice").unwrap_or(name);
        name.strip_prefix("pod").or_else(|| name.split_once("-pod").map(|(_, uid)| uid))
    })?;
    let uid = uid.replace('_', "-");
    // A UID, or the hash of a static pod.
    let is_uid = uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    (is_uid && (32..=36).contains(&uid.len())).then_some(uid)
}

fn is_root_of_pods(name: &str) -> bool {
    // Kubelet's own root may be in front, as in kubelet-kubepods.slice.
    let name = name.strip_suffix(".slice").unwrap_or(name);
    name == "kubepods" || name.ends_with("-kubepods")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "3b0e2d2c-5a4a-4d34-9b1e-1f2f3a4b5c6d";
    const OTHER: &str = "00000000-0000-4000-8000-000000000000";

    #[test]
    fn the_pod_is_found_with_both_drivers_and_both_versions() {
        let systemd = UID.replace('-', "_");
        for path in [
            format!("/kubepods/pod{UID}/c"),
            format!("/kubepods/burstable/pod{UID}/c"),
            format!("/kubepods/besteffort/pod{UID}"),
            format!("/lab/kubepods/besteffort/pod{UID}/c/inner"),
            format!("/kubepods.slice/kubepods-pod{systemd}.slice/cri-containerd-c.scope"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice"
            ),
            format!(
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/\
                 kubelet-kubepods-besteffort-pod{systemd}.slice/c"
            ),
        ] {
            assert_eq!(pod_of(&format!("0::{path}\n")).as_deref(), Some(UID), "{path}");
            let hybrid = format!("3:cpu,cpuacct:{path}\n2:memory:{path}\n0::/\n");
            assert_eq!(pod_of(&hybrid).as_deref(), Some(UID), "{path}");
        }
    }

    #[test]
    fn a_process_of_the_host_is_in_no_pod() {
        for path in
            ["/", "", "/system.slice/ssh.service", "/user.slice/pod", "/kubepods", "/kubepods/x"]
        {
            assert_eq!(pod_of(&format!("0::{path}\n")), None, "{path}");
        }
        // A user may name a control group like a pod, but not below that of kubelet.
        assert_eq!(pod_of(&format!("0::/user.slice/pod{UID}\n")), None);
        assert_eq!(pod_of(&format!("0::/kubepods/pod{}\n", &UID[..20])), None);
        assert_eq!(pod_of("0::/kubepods/podzzzzzzzz-5a4a-4d34-9b1e-1f2f3a4b5c6d\n"), None);
    }

    #[test]
    fn a_pod_cannot_pretend_to_be_another_one() {
        let inner = format!("0::/kubepods/pod{UID}/c/kubepods/pod{OTHER}/c\n");
        assert_eq!(pod_of(&inner).as_deref(), Some(UID));
        let two = format!("1:cpu:/kubepods/pod{UID}/c\n0::/kubepods/pod{OTHER}/c\n");
        assert_eq!(pod_of(&two), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in ".*") {
            let _ = pod_of(&text);
        }

        #[test]
        fn what_is_appended_changes_nothing(rest in "[a-z/-]{0,40}") {
            let path = format!("0::/kubepods/burstable/pod{UID}/{rest}\n");
            prop_assert_eq!(pod_of(&path), Some(UID.to_owned()));
        }
    }
}
