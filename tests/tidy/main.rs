//! The rules of the source that a machine can enforce: import directions, where `unsafe` may be,
//! language, layout and documents. ARCHITECTURE.md has the rules that they come from.

mod documents;
mod language;
mod layout;
mod modules;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use source::{Source, root, sources};

/// Crates of the workspace that each package may import. Tests may import anything.
const IMPORTS: [(&str, &[&str]); 29] = [
    ("fastlane-wire", &[]),
    ("fastlane-table", &[]),
    ("fastlane-core", &["table", "wire"]),
    ("fastlane-capture", &["core", "table"]),
    ("fastlane-flow-tier", &["mirror", "netlink", "steer", "table"]),
    ("fastlane-hold", &["core"]),
    ("fastlane-sharding", &["core", "table"]),
    ("fastlane-steer", &["wire"]),
    ("fastlane-af-xdp", &["core", "steer", "table", "wire"]),
    ("fastlane-dpdk", &["core", "steer", "table", "wire"]),
    ("fastlane-kernel", &["core", "netlink", "steer", "wire"]),
    ("fastlane-local", &["core", "sharding", "table"]),
    ("fastlane-measure", &[""]),
    ("fastlane-memif", &["core", "steer", "table", "wire"]),
    ("fastlane-mirror", &["core", "netlink", "table"]),
    ("fastlane-netlink", &[]),
    ("fastlane-pfcp", &[]),
    ("fastlane-terminal", &[]),
    ("fastlane-testing", &["core", "table", "wire"]),
    (
        "fastlane",
        &[
            "af-xdp",
            "capture",
            "core",
            "dpdk",
            "flow-tier",
            "hold",
            "kernel",
            "local",
            "memif",
            "mirror",
            "sharding",
            "steer",
            "table",
            "wire",
        ],
    ),
    ("fastlane-agent", &["", "af-xdp", "core", "steer", "table"]),
    ("fastlane-kubernetes", &["", "agent"]),
    ("fastlane-capi", &[""]),
    ("macswap", &[""]),
    ("router", &[""]),
    ("traffic", &[""]),
    ("peer", &["kernel", "pfcp", "wire"]),
    ("upf", &["", "pfcp", "terminal"]),
    ("fastlane-cli", &["", "agent", "kubernetes", "measure", "terminal"]),
];

/// Packages that are no part of the product: they may import anything, and no other imports them.
const TOOLS: [&str; 2] = ["fastlane-bench", "fastlane-tests"];

/// The files, besides tests, that may hold `unsafe`. The workspace denies it; each of these allows
/// it for itself, with the reason.
const UNSAFE: [&str; 44] = [
    "bench/src/device/memif_server/rings.rs",
    "bench/src/rivals/ffi.rs",
    "crates/af-xdp/src/in_flight.rs",
    "crates/af-xdp/src/mtu.rs",
    "crates/af-xdp/src/ring/mapped.rs",
    "crates/af-xdp/src/socket.rs",
    "crates/capi/src/application.rs",
    "crates/capi/src/entry.rs",
    "crates/capi/src/lane.rs",
    "crates/capi/src/turn.rs",
    "crates/core/src/burst.rs",
    "crates/core/src/pool.rs",
    "crates/core/src/packet.rs",
    "crates/core/src/packet_ring.rs",
    "crates/core/src/turn.rs",
    "crates/dpdk/src/plugin.rs",
    "crates/fastlane/src/table_readers.rs",
    "crates/kernel/src/af_packet/ring.rs",
    "crates/kernel/src/af_packet/socket.rs",
    "crates/kernel/src/ffi.rs",
    "crates/kernel/src/inherited.rs",
    "crates/local/src/ring/spsc.rs",
    "crates/memif/src/region.rs",
    "crates/memif/src/ring.rs",
    "crates/steer/src/array_reader.rs",
    "crates/steer/src/link.rs",
    "crates/steer/src/program_array.rs",
    "crates/table/src/classifier/classifier_reader.rs",
    "crates/table/src/classifier/generation.rs",
    "crates/table/src/classifier/instructions.rs",
    "crates/table/src/guard.rs",
    "crates/table/src/hash/hash_reader.rs",
    "crates/table/src/memory.rs",
    "crates/table/src/readers.rs",
    "crates/table/src/shared_slice.rs",
    "crates/table/src/shared_words.rs",
    "crates/table/src/simd.rs",
    "crates/table/src/simd/gathers.rs",
    "crates/table/src/simd/gathers/ipv4_gathers.rs",
    "crates/table/src/simd/gathers/ipv6_gathers.rs",
    "crates/table/src/slots.rs",
    "crates/testing/src/memory_only.rs",
    "crates/testing/src/namespace/system.rs",
    "crates/testing/src/readers.rs",
];

#[test]
fn imports_go_one_way() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo tells the dependencies");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let allowed: BTreeMap<&str, &[&str]> = IMPORTS.into_iter().collect();
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        if TOOLS.contains(&name) {
            continue;
        }
        let Some(allowed) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the list of this test"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let imported = dependency["name"].as_str().unwrap();
            let ours = imported == "fastlane" || imported.starts_with("fastlane-");
            let test_only = dependency["kind"] == "dev";
            if !ours && !TOOLS.contains(&imported) || test_only {
                continue;
            }
            let short = imported.strip_prefix("fastlane").unwrap().trim_start_matches('-');
            if imported == "fastlane-testing" || !allowed.contains(&short) {
                wrong.push(format!("{name} imports {imported}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn core_opens_nothing_and_only_the_facade_knows_json() {
    let mut wrong = Vec::new();
    for source in sources() {
        let path = &source.path;
        let crate_of = |name: &str| path.starts_with(&format!("crates/{name}/src"));
        let library = [
            "core", "capture", "hold", "sharding", "wire", "table", "steer", "af-xdp", "kernel",
            "local",
        ];
        if library.into_iter().any(crate_of) && source.text.contains("serde_json") {
            wrong.push(format!("{path} knows JSON"));
        }
        let opens = ["std::fs::", "std::net::Tcp", "socket(", "memfd_create", "epoll::create"];
        let mut code = source.code().map(|(_, line)| line);
        let core = crate_of("core") && !source.is_test();
        if core && code.any(|line| opens.iter().any(|call| line.contains(call))) {
            wrong.push(format!("{path} opens something"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_stays_where_it_may_be() {
    let allows =
        |source: &Source| source.code().any(|(_, line)| line.contains("allow(unsafe_code"));
    let sources = sources();
    let found: BTreeSet<&str> = sources
        .iter()
        .filter(|source| !source.is_test() && allows(source))
        .map(|source| source.path.as_str())
        .collect();
    assert_eq!(found, BTreeSet::from(UNSAFE), "who allows it, and who may");
    // Where nothing is allowed, nobody can begin to.
    let forbids = ["wire", "pfcp", "mirror", "netlink", "flow-tier"]
        .map(|name| format!("crates/{name}/src/lib.rs"));
    for path in forbids {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{path} does not forbid unsafe code");
    }
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("\nunsafe_code = \"deny\"\n"), "the workspace does not deny it");
}

#[test]
fn a_macswap_is_sixteen_lines_of_code_and_thirty_in_c() {
    for (path, most) in [("macswap/src/main.rs", 16), ("macswap-c/macswap.c", 30)] {
        let path = format!("apps/{path}");
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let lines = Source { path: path.clone(), text }.code().count();
        assert!(lines <= most, "{path} has {lines} lines");
    }
}
