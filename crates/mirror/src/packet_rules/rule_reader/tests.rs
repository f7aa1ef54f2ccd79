//! Rules that the real `nft` has loaded, in network namespaces.

use std::io::Write;
use std::process::{Command, Stdio};

use fastlane_testing::namespace::private;

use super::*;

/// Policy by which connections are fast that a rule marks with 1.
const POLICY: FlowPolicy = FlowPolicy { mark: 1, mask: 1, one_way: false };

fn load(rules: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let text = format!("flush ruleset\n{rules}");
    nft.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{rules}");
}

/// Returns what is found in a chain of this hook with these rules.
fn found(hook: &str, rules: &str) -> Option<String> {
    let chain = format!("type filter hook {hook} priority 0; policy drop;");
    load(&format!("table inet t {{\nchain c {{\n{chain}\n{rules}\n}}\n}}\n"));
    per_packet_rule(&POLICY).unwrap().map(|rule| rule.what)
}

#[test]
fn rules_that_act_on_each_packet_of_established_connections_are_found() {
    if !private("packet-rules") {
        return;
    }
    assert_eq!(per_packet_rule(&POLICY).unwrap(), None, "there are none");
    for (rule, what) in [
        ("limit rate 10/second accept", "limit"),
        ("ip saddr 10.0.0.1 log prefix \"seen\" accept", "log"),
        ("quota over 10 mbytes drop", "quota"),
        ("ct state established limit rate 10/second accept", "limit"),
        ("ct state established,new meta priority set 1:7", "meta set"),
        ("ip dscp set cs1 accept", "payload set"),
        ("ct bytes > 1000000 drop", "ct bytes, packets or avgpkt"),
        ("meta hour \"08:00\"-\"18:00\" accept", "meta time, day, hour or random"),
        ("tcp dport 80 numgen random mod 2 0 drop", "numgen"),
    ] {
        assert_eq!(found("forward", rule).as_deref(), Some(what), "{rule}");
        assert_eq!(found("prerouting", rule).as_deref(), Some(what), "{rule}");
        assert_eq!(found("input", rule), None, "{rule}");
        let accepted = format!("ct state established,related accept\n{rule}");
        assert_eq!(found("forward", &accepted), None, "{rule}");
    }
    load(
        "table ip n {
        counter a { }
        limit b { rate 10/second; }
        chain c {
        type filter hook postrouting priority 0
        counter name a ip daddr 10.0.0.1 limit name b accept
        }
        }
        ",
    );
    let rule = per_packet_rule(&POLICY).unwrap().unwrap();
    assert_eq!(
        rule.to_string(),
        format!("`limit name` in rule {} of chain `c`, table `n`", rule.handle)
    );
    let listed =
        Command::new("nft").args(["-a", "list", "chain", "ip", "n", "c"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains(&format!("handle {}\n\t}}", rule.handle)), "{listed}");
}

#[test]
fn rules_that_make_connections_fast_once_they_have_grown_are_harmless() {
    if !private("packet-rules-volume") {
        return;
    }
    for rule in [
        "ct packets > 8 ct mark set 0x1 accept",
        "ct state established ct packets >= 8 ct mark set ct mark | 0x1 accept",
        "ct original bytes > 10000 ct mark set 0x3 counter",
        "tcp dport 443 ct reply packets > 100 counter ct mark set ct mark and 0xfffffff0 or 0x5",
        "ip saddr 10.0.0.0/8 meta l4proto tcp ct bytes > 10000 accept",
    ] {
        assert_eq!(found("forward", rule), None, "{rule}");
        let limited = format!("{rule}\nct bytes > 1000000000 drop");
        assert!(found("forward", &limited).is_some(), "{rule}");
    }
    for rule in [
        "ct packets < 8 ct mark set 0x1 accept",
        "ct packets 8 ct mark set 0x1",
        "ct packets 8-10 ct mark set 0x1",
        "ct packets != 8 ct mark set 0x1",
        "ct packets > 8 ct mark set 0x2 accept",
        "ct packets > 8 ct mark set ct mark | 0x2",
        "ct packets > 8 ct mark set ct mark & 0x1",
        "ct packets > 8 ct mark set ct mark ^ 0x1",
        "ct packets > 8 ct mark set meta mark",
        "ct avgpkt > 100 ct mark set 0x1 accept",
        "ct packets > 8 drop",
        "ct packets > 8 reject",
        "ct packets > 8 return",
        "ct packets > 8 jump other",
        "ct packets > 8 meta mark set 0x1",
        "ct bytes > 1000 ip ttl set 3",
        "ct bytes > 1000 add @seen { ip saddr } ct mark set 0x1",
        "ct bytes > 1000 ct mark set 0x1 ct label set 3",
        "ct bytes vmap { 1-1000 : accept, 1001-2000 : drop }",
    ] {
        let sets = "set seen { type ipv4_addr; flags dynamic; size 8; }\nchain other { drop; }";
        let chain = format!("type filter hook forward priority 0;\n{rule}\n");
        load(&format!("table inet t {{\n{sets}\nchain c {{\n{chain}}}\n}}\n"));
        let found = per_packet_rule(&POLICY).unwrap().map(|rule| rule.what);
        let what = if rule.contains("ttl") { "payload set" } else { "ct bytes, packets or avgpkt" };
        assert_eq!(found.as_deref(), Some(what), "{rule}");
    }
    // Where marks do not matter, they change nothing.
    assert!(found("forward", "ct packets > 8 ct mark set 2").is_some());
    let all = FlowPolicy { mark: 0, mask: 0, one_way: false };
    assert_eq!(per_packet_rule(&all).unwrap(), None);
}

/// Sets, objects and maps of objects.
const SETS: &str = "
    set flood { type ipv4_addr; flags dynamic; size 8; }
    set slow { type ipv4_addr; flags dynamic; size 8; limit rate over 1 mbytes/second; }
    set both { type ipv4_addr; flags dynamic; size 8; counter quota over 10 mbytes; }
    set counted { type ipv4_addr; flags dynamic; size 8; counter; }
    counter a { }
    limit b { rate 10/second; }
    quota q { over 10 mbytes; }
    map counters { type ipv4_addr : counter; elements = { 10.0.0.1 : \"a\" }; }
    map limits { type ipv4_addr : limit; elements = { 10.0.0.1 : \"b\" }; }
    map quotas { type ipv4_addr : quota; elements = { 10.0.0.1 : \"q\" }; }
    ";

#[test]
fn limits_in_sets_and_maps_are_found() {
    if !private("packet-rules-of-sets") {
        return;
    }
    let found = |rule: &str| {
        let chain = format!("type filter hook forward priority 0; {rule};");
        load(&format!("table ip t {{\n{SETS}\nchain c {{\n{chain}\n}}\n}}\n"));
        per_packet_rule(&POLICY).unwrap().map(|rule| rule.what)
    };
    for (rule, what) in [
        ("update @flood { ip saddr limit rate over 20 mbytes/second } drop", "limit of set flood"),
        ("add @flood { ip saddr counter quota over 9 mbytes } drop", "quota of set flood"),
        ("meter m { ip saddr limit rate 10/second } accept", "limit of set m"),
        ("update @slow { ip saddr } drop", "limit of set slow"),
        ("ip saddr @slow drop", "limit of set slow"),
        ("update @both { ip saddr } drop", "quota of set both"),
        ("limit name ip saddr map @limits drop", "limit of map limits"),
        ("quota name ip saddr map @quotas drop", "quota of map quotas"),
        ("limit name ip saddr map { 10.0.0.1 : \"b\" } drop", "limit of map __objmap0"),
        ("reset tcp option timestamp", "reset tcp option"),
        ("tcp option timestamp tsval set 1", "tcp option set"),
    ] {
        assert_eq!(found(rule).as_deref(), Some(what), "{rule}");
        let accepted = format!("ct state established,related accept\n{rule}");
        assert_eq!(found(&accepted), None, "{rule}");
    }
    for rule in [
        "update @flood { ip saddr counter } accept",
        "update @flood { ip saddr } accept",
        "ct state new update @flood { ip saddr limit rate over 10/second } drop",
        "ct state new ip saddr @slow drop",
        "update @counted { ip saddr } accept",
        "ip saddr @counted drop",
        "counter name ip saddr map @counters",
        "counter name ip saddr map { 10.0.0.1 : \"a\" } accept",
        "reset tcp option sack-perm",
        "tcp option maxseg size set 1400",
        "tcp option timestamp exists accept",
    ] {
        assert_eq!(found(rule), None, "{rule}");
    }
}

#[test]
fn rules_for_other_packets_are_passed_over() {
    if !private("other-packet-rules") {
        return;
    }
    let marks = "ct state invalid log drop
        ct state established,related counter ct mark set ct mark | 0x1 accept
        ip saddr 10.0.0.1 limit rate 10/second accept";
    assert_eq!(found("forward", marks), None, "the rules of the README");
    let map = "ct state vmap { established : accept, related : accept, invalid : drop }
        limit rate 10/second log accept";
    assert_eq!(found("forward", map), None);
    let named = "ct state vmap { related : accept, * : accept }
        limit rate 10/second log accept";
    assert_eq!(found("forward", named), None, "all others are accepted");
    for rule in [
        "ct state new limit rate 10/second log accept",
        "tcp flags syn counter packets 0 bytes 0 tcp option maxseg size set rt mtu",
        "meta nftrace set 1",
        "meta mark set 7",
        "ct mark set 7 accept",
        "iifname \"a\" oifname \"b\" tcp dport { 80, 443 } accept",
    ] {
        assert_eq!(found("forward", rule), None, "{rule}");
    }
    // Not all established connections are accepted before it.
    for rule in [
        "ct state established tcp dport 80 accept",
        "ct state established ct mark 1 accept",
        "ct state new accept",
        "ct state established counter",
        "ct state vmap { related : accept, invalid : drop }",
        "ct state vmap { established : continue, * : accept }",
        "ct state new ct state vmap { established : accept }",
    ] {
        let rules = format!("{rule}\nlimit rate 10/second accept");
        assert_eq!(found("forward", &rules).as_deref(), Some("limit"), "{rule}");
    }
}

#[test]
fn each_packet_without_a_reply_is_of_a_new_connection() {
    if !private("one-way-packet-rules") {
        return;
    }
    let limit = "ct state new udp dport 5000 limit rate 100/second accept";
    for (rules, alone, with_new) in [
        (limit.to_owned(), None, Some("limit")),
        (format!("ct state established accept\n{limit}"), None, Some("limit")),
        (format!("ct state established,new accept\n{limit}"), None, None),
        (format!("ct state vmap {{ established : accept }}\n{limit}"), None, Some("limit")),
        (format!("ct state vmap {{ established : accept, new : accept }}\n{limit}"), None, None),
    ] {
        assert_eq!(found("forward", &rules).as_deref(), alone, "{rules}");
        let with =
            per_packet_rule(&FlowPolicy { one_way: true, ..POLICY }).unwrap().map(|rule| rule.what);
        assert_eq!(with.as_deref(), with_new, "{rules}");
    }
}

#[test]
fn chains_are_known_by_their_hooks() {
    if !private("packet-rules-of-chains") {
        return;
    }
    // A chain that others jump to.
    load(
        "table ip t {
        chain d { limit rate 10/second accept; }
        chain c { type filter hook forward priority 0; tcp dport 80 jump d; }
        }
        ",
    );
    let place = per_packet_rule(&POLICY).unwrap().map(|rule| rule.place);
    assert_eq!(place.map(|it| it.chain).as_deref(), Some("d"));
    let nat = "type nat hook postrouting priority 100; limit rate 1/second masquerade;";
    load(&format!("table ip t {{\nchain c {{ {nat} }}\n}}\n"));
    assert_eq!(per_packet_rule(&POLICY).unwrap(), None, "only the first packet of a connection");
    load(
        "table arp t {
        chain c { type filter hook input priority 0; limit rate 1/second accept; }
        }
        table netdev t {
        chain c { limit rate 1/second accept; }
        }
        ",
    );
    assert_eq!(per_packet_rule(&POLICY).unwrap(), None, "nothing leads there");
    // Chains of devices know no connections.
    let of_device = |hook: &str, rule: &str| {
        let chain = format!("type filter hook {hook} device lo priority 0; {rule};");
        load(&format!("table netdev t {{\nchain c {{ {chain} }}\n}}\n"));
        per_packet_rule(&POLICY).unwrap().map(|rule| rule.what)
    };
    for hook in ["ingress", "egress"] {
        let found = of_device(hook, "ip saddr 10.0.0.1 drop");
        assert_eq!(found.as_deref(), Some("drop"), "{hook}");
        assert_eq!(of_device(hook, "ip saddr 10.0.0.1 accept"), None, "{hook}");
        assert_eq!(of_device(hook, "limit rate 1/second").as_deref(), Some("limit"), "{hook}");
    }
    assert_eq!(found("ingress device lo", "ip saddr 10.0.0.1 drop").as_deref(), Some("drop"));
    assert_eq!(found("forward", "ip saddr 10.0.0.1 drop"), None, "the first packet did not pass");
}

/// Chains as ufw and firewalld have them: a rule that accepts is in one, limits are in others.
#[test]
fn packets_are_followed_through_chains() {
    if !private("packet-rules-through-chains") {
        return;
    }
    let of = |chains: &str, forward: &str| {
        let hook = "type filter hook forward priority 0; policy drop;";
        load(&format!("table ip t {{\n{chains}\nchain c {{\n{hook}\n{forward}\n}}\n}}\n"));
        per_packet_rule(&POLICY).unwrap().map(|rule| rule.place.chain)
    };
    let chains = "
        chain accepts { ct state established,related accept; }
        chain some { tcp dport 80 accept; }
        chain back { ct state established return; limit rate 1/second accept; }
        chain logs { limit rate 1/second log; }
        chain deep { jump accepts; limit rate 1/second accept; }
        chain zones { iifname vmap { \"a\" : jump some, \"b\" : goto logs }; }
        ";
    for (forward, wanted) in [
        ("jump accepts\njump logs", None),
        ("jump logs\njump accepts", Some("logs")),
        ("jump some\njump logs", Some("logs")),
        ("tcp dport 80 jump accepts\njump logs", Some("logs")),
        ("jump back\njump some", None),
        ("jump back\njump logs", Some("logs")),
        ("jump deep\njump logs", None),
        ("goto some\njump logs", None),
        ("iifname \"a\" goto some\njump logs", Some("logs")),
        ("jump zones", Some("logs")),
        ("jump accepts\njump zones", None),
        ("ct state vmap { established : goto some, new : goto accepts }\njump logs", Some("logs")),
        ("ct state vmap { established : accept, new : goto logs }", None),
        ("ct state vmap { established : jump some, new : drop }\njump logs", Some("logs")),
        ("ct state vmap { established : jump logs, new : drop }", Some("logs")),
        ("ct state vmap { established : accept, new : drop }\njump logs", None),
        ("accept", None),
    ] {
        assert_eq!(of(chains, forward).as_deref(), wanted, "{forward}");
    }
}
