//! Decoding of the samples by tshark.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::samples;

/// Writes a capture file (pcap, link type raw IP) of UDP datagrams between ports 8805.
fn capture(path: &Path, datagrams: &[(&str, Vec<u8>)]) {
    let mut file = std::fs::File::create(path).unwrap();
    let header: [u32; 6] = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 101];
    let mut octets: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // The version is two numbers of 16 bits.
    octets[4..8].copy_from_slice(&[2_u16.to_ne_bytes(), 4_u16.to_ne_bytes()].concat());
    for (_, datagram) in datagrams {
        let udp = u16::try_from(datagram.len() + 8).unwrap();
        let length = u32::from(udp) + 20;
        for word in [0, 0, length, length] {
            octets.extend_from_slice(&u32::to_ne_bytes(word));
        }
        let [high, low] = (udp + 20).to_be_bytes();
        octets.extend_from_slice(&[0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0]);
        octets.extend_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2, 0x22, 0x65, 0x22, 0x65]);
        octets.extend_from_slice(&udp.to_be_bytes());
        octets.extend_from_slice(&[0, 0]);
        octets.extend_from_slice(datagram);
    }
    file.write_all(&octets).unwrap();
}

fn tshark(file: &Path, arguments: &[&str]) -> String {
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(file)
        .args(arguments)
        .output()
        .expect("tshark can be started: make install-packages");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

struct Captured(tempfile::TempDir);

impl Captured {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        capture(&directory.path().join("pfcp.pcap"), &samples::all());
        Self(directory)
    }

    fn ask(&self, arguments: &[&str]) -> String {
        tshark(&self.0.path().join("pfcp.pcap"), arguments)
    }

    /// Returns all values of each field in a sample.
    fn fields(&self, sample: &str, fields: &[&str]) -> Vec<String> {
        let number = samples::all().iter().position(|(name, _)| *name == sample).unwrap() + 1;
        let filter = format!("frame.number == {number}");
        let mut arguments = vec!["-Y", &filter, "-T", "fields"];
        arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
        let output = self.ask(&arguments);
        let line = output.strip_suffix('\n').expect("one line");
        line.split('\t').map(str::to_owned).collect()
    }
}

#[test]
fn nothing_is_malformed_or_unknown() {
    let captured = Captured::new();
    let bad = "_ws.malformed || pfcp.ie_encoding_error || pfcp.ie_not_decoded_null \
               || pfcp.ie_data_not_decoded || pfcp.ie_id_reserved";
    let named =
        captured.ask(&["-Y", bad, "-T", "fields", "-e", "frame.number", "-e", "pfcp.msg_type"]);
    assert_eq!(named, "", "tshark objects");
    let experts = captured.ask(&["-Y", "_ws.expert.severity >= 0x600000", "-V"]);
    assert_eq!(experts, "", "tshark warns");
    let types = captured.ask(&["-T", "fields", "-e", "pfcp.msg_type"]);
    assert_eq!(types.lines().count(), samples::all().len());
    let ours: Vec<String> =
        samples::all().iter().map(|(_, octets)| octets[1].to_string()).collect();
    assert_eq!(types.lines().collect::<Vec<_>>(), ours);
}

#[test]
fn the_oracle_objects_to_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bad.pcap");
    let mut datagram = samples::all().remove(0).1;
    let at = datagram.len() - 5;
    datagram[at] = 9;
    capture(&path, &[("bad", datagram)]);
    let named = tshark(&path, &["-Y", "_ws.malformed", "-T", "fields", "-e", "frame.number"]);
    assert_eq!(named, "1\n", "an element is longer than its message");
}

#[test]
fn fields_have_our_values() {
    let captured = Captured::new();
    let mut wrong = Vec::new();
    for (sample, fields) in expected() {
        let names: Vec<_> = fields.iter().map(|(field, _)| *field).collect();
        for ((field, value), read) in fields.iter().zip(captured.fields(sample, &names)) {
            if read != *value {
                wrong.push(format!("{sample}: {field} is {read} instead of {value}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

type Fields = Vec<(&'static str, &'static str)>;

fn expected() -> Vec<(&'static str, Fields)> {
    let mut expected = expected_of_nodes();
    expected.extend(expected_of_sessions());
    expected
}

fn expected_of_nodes() -> Vec<(&'static str, Fields)> {
    vec![
        ("heartbeat-request", vec![("pfcp.seqno", "11259375"), ("pfcp.s", "0")]),
        ("association-setup-request", association()),
        (
            "association-setup-response",
            vec![
                ("pfcp.node_id_ipv6", "2001:db8::9"),
                ("pfcp.cause", "1"),
                ("pfcp.up_function_features.bucp", "1"),
                ("pfcp.up_function_features.empu", "1"),
                ("pfcp.up_function_features.upidp", "1"),
                ("pfcp.asrsp_flags.flags.psrei", "1"),
            ],
        ),
        (
            "association-update-request",
            vec![
                ("pfcp.assoc_rel_req.sarr", "1"),
                // Sixty minutes do not fit 5 bits: in units of ten.
                ("pfcp.timer_unit", "2"),
                ("pfcp.timer_value", "6"),
                ("pfcp.aureq_flags.parps", "1"),
            ],
        ),
        (
            "node-report-request",
            vec![
                ("pfcp.node_report_type.upfr", "1"),
                ("pfcp.node_report_type.uprr", "1"),
                ("pfcp.node_id_ipv4", "192.0.2.7,192.0.2.7,192.0.2.7"),
                ("pfcp.node_id_ipv6", "2001:db8::9,2001:db8::9"),
                ("pfcp.network_instance", "access,access"),
            ],
        ),
        (
            "session-set-deletion-request",
            vec![
                ("pfcp.q_csid_node_id.ipv4", "192.0.2.7"),
                ("pfcp.csid", "5,262,9"),
                ("pfcp.fq_csid_node_type", "1,5"),
            ],
        ),
        (
            "pfd-management-request",
            vec![
                ("pfcp.application_id_str", "video"),
                ("pfcp.flow_desc", "permit out ip from 198.51.100.0/24 to assigned"),
                ("pfcp.url", "https://example.org/*"),
                ("pfcp.dn", "example.org"),
            ],
        ),
    ]
}

fn expected_of_sessions() -> Vec<(&'static str, Fields)> {
    vec![
        ("session-establishment-request", detection()),
        ("session-establishment-request", forwarding()),
        ("session-establishment-request", usage_rules()),
        ("session-establishment-request", enforcement()),
        ("session-modification-request", modification()),
        ("session-modification-response", reports()),
        ("session-report-request", report()),
        (
            "session-report-response",
            vec![
                ("pfcp.dl_data_notification_delay", "2"),
                // 601 seconds, rounded up to eleven minutes.
                ("pfcp.timer_unit", "1"),
                ("pfcp.timer_value", "11"),
                ("pfcp.packet_count", "300"),
                ("pfcp.srrsp_flags.drobu", "1"),
            ],
        ),
        (
            "session-establishment-response",
            vec![
                ("pfcp.cause", "73"),
                ("pfcp.offending_ie", "108"),
                ("pfcp.seid", "0x0102030405060708,0x1122334455667788"),
                ("pfcp.f_teid.teid", "0x01020304,0x01020305"),
                ("pfcp.metric", "40,30"),
                ("pfcp.oci_flags.aoci", "1"),
                ("pfcp.failed_rule_id_type", "0"),
            ],
        ),
    ]
}

fn association() -> Fields {
    vec![
        // tshark calls the set of SMFs so too.
        ("pfcp.node_id_fqdn", "upf.example,set.smf"),
        ("pfcp.up_function_features.ftup", "1"),
        ("pfcp.up_function_features.ueip", "1"),
        ("pfcp.up_function_features.upidp", "1"),
        ("pfcp.up_function_features.bucp", "0"),
        ("pfcp.cp_function_features.load", "1"),
        ("pfcp.cp_function_features.rpgur", "1"),
        ("pfcp.upiri.teidri", "3"),
        ("pfcp.upiri.teid_range", "0x00000060"),
        ("pfcp.upiri.ipv4_addr", "192.0.2.7"),
        ("pfcp.source_interface", "1"),
        ("pfcp.network_instance", "internet,internet"),
        ("pfcp.ue_ip_address_pool_identity", "706f6f6c2d31"),
        ("pfcp.s_nssai_sst.sst", "01"),
        ("pfcp.s_nssai_sst.sd", "ffee01"),
        ("pfcp.alternative_smf_ip_address.ipv4", "192.0.2.7"),
        ("pfcp.cp_pfcp_entity_ip_address.ipv6", "2001:db8::9"),
        ("pfcp.asreq_flags.flags.uupsi", "1"),
    ]
}

fn detection() -> Fields {
    vec![
        ("pfcp.f_seid.ipv4", "192.0.2.7"),
        ("pfcp.pdr_id", "1"),
        ("pfcp.precedence", "32"),
        ("pfcp.f_teid.teid", "0x01020304"),
        ("pfcp.f_teid.choose_id", "05"),
        ("pfcp.ue_ip_addr_ipv6", "2001:db8::9"),
        ("pfcp.ue_ip_addr_ipv6_prefix", "8"),
        ("pfcp.ue_ip_addr_ipv6_prefix_length", "56"),
        ("pfcp.flow_desc", "permit out 17 from any 53 to assigned"),
        ("pfcp.traffic_class", "0xb8,0xb8,0x00,0xb8"),
        ("pfcp.spi", "0x00010203"),
        ("pfcp.flow_label", "0x0abcde"),
        ("pfcp.sdf_filter_id", "77,78"),
        ("pfcp.qfi_value", "0x09,0x3f,0x09"),
        ("pfcp.framed_route", "203.0.113.0/24 0.0.0.0 1,203.0.113.0/24 0.0.0.0 1"),
        ("pfcp.tgpp_interface_type", "11,17"),
        ("pfcp.out_hdr_desc", "6"),
        ("pfcp.gtpu_ext_hdr_del.pdu_sess_cont", "1"),
        ("pfcp.urr_id", "1,2,1,2,3,2"),
        ("pfcp.predef_rules_name", "676f6c64"),
        ("pfcp.apn_dnn", "internet"),
        ("pfcp.user_id.supi", "imsi-001010123456789"),
        ("pfcp.user_id.nai", "user@example.org"),
        ("pfcp.user_id.gpsi", "msisdn-123456"),
        ("pfcp.user_id.pei", "imei-353456789012347"),
        ("pfcp.sereq_flags.flags.resti", "1"),
        ("pfcp.pdn_type", "3"),
        ("pfcp.rattype", "10,10"),
    ]
}

fn forwarding() -> Fields {
    vec![
        ("pfcp.apply_action.forw", "1"),
        ("pfcp.apply_action.dupl", "1"),
        ("pfcp.apply_action.drop", "0"),
        ("pfcp.dst_interface", "1,4"),
        ("pfcp.redirect_server_address", "http://portal.example.org/"),
        ("pfcp.outer_hdr_creation.teid", "0x0a0b0c0d"),
        ("pfcp.outer_hdr_creation.ipv4", "192.0.2.7,192.0.2.7"),
        ("pfcp.outer_hdr_creation.ipv6", "2001:db8::9"),
        ("pfcp.outer_hdr_creation.port", "4000"),
        ("pfcp.forwarding_policy_id", "706f6c696379,636f7079"),
        ("pfcp.hf_name", "582d55736572"),
        ("pfcp.hf_val", "3132"),
        ("pfcp.proxying.flags.ins", "1"),
        ("pfcp.bar_id", "4,4"),
    ]
}

fn usage_rules() -> Fields {
    vec![
        ("pfcp.measurement_period", "60"),
        ("pfcp.volume_threshold.tovol", "3298534883328"),
        ("pfcp.volume_threshold.ulvol", "1099511627776"),
        ("pfcp.volume_quota.dlvol", "2"),
        ("pfcp.reporting_triggers_flags.upint", "1"),
        ("pfcp.time_threshold", "3600"),
        ("pfcp.time_quota", "7200"),
        ("pfcp.quota_holding_time", "30"),
        ("pfcp.downlink_packets", "5"),
        ("pfcp.bytes_downlink_data", "5000"),
        ("pfcp.subseq_volume_threshold.ulvol", "9,9"),
        ("pfcp.subsequent_time_quota", "200,200"),
        ("pfcp.subsequent_event_threshold", "3,3"),
        ("pfcp.inactivity_detection_time", "10"),
        ("pfcp.measurement_info.mnop", "1"),
        ("pfcp.time_quota_mechanism_bti", "900"),
        ("pfcp.multiplier.value_digits", "18446744073709551613"),
        ("pfcp.number_of_reports", "12"),
        ("pfcp.validity_time_value", "86400"),
    ]
}

fn enforcement() -> Fields {
    vec![
        ("pfcp.gate_status.ulgate", "1"),
        ("pfcp.gate_status.dlgate", "0"),
        ("pfcp.ul_mbr", "1000000"),
        ("pfcp.dl_mbr", "1099511627775"),
        ("pfcp.ul_gbr", "5000"),
        ("pfcp.dl_gbr", "6000"),
        ("pfcp.max_ul_pr", "100"),
        ("pfcp.dl_time_unit", "3"),
        ("pfcp.rqi_flag", "1"),
        ("pfcp.ppi", "5"),
        ("pfcp.averaging_window", "2000"),
        ("pfcp.qer_control_indications.rcsr", "1"),
        ("pfcp.dl_data_notification_delay", "20"),
        ("pfcp.suggested_buffering_packets_count.packet_count", "64"),
    ]
}

fn modification() -> Fields {
    vec![
        ("pfcp.pdr_id", "2,1"),
        ("pfcp.apply_action.buff", "1"),
        ("pfcp.apply_action.nocp", "1"),
        ("pfcp.apply_action.bdpn", "1"),
        ("pfcp.smreq_flags.sndem", "1,0"),
        ("pfcp.smreq_flags.qaurr", "0,1"),
        ("pfcp.other_redirect_server_address", "2001:db8::1"),
        ("pfcp.outer_hdr_creation.teid", "0x00000005"),
        ("pfcp.query_urr_reference", "99"),
    ]
}

fn reports() -> Fields {
    vec![
        ("pfcp.ur_seqn", "6"),
        ("pfcp.volume_measurement.tovol", "3000"),
        ("pfcp.volume_measurement.dlnop", "2"),
        ("pfcp.duration_measurement", "60"),
        ("pfcp.usage_report_trigger.term", "1"),
        ("pfcp.usage_report_trigger_flags.quvti", "1"),
        ("pfcp.usage_information.uae", "1"),
        ("pfcp.additional_usage_reports_information_value", "3"),
        ("pfcp.qer_id", "2"),
    ]
}

fn report() -> Fields {
    vec![
        ("pfcp.report_type.dldr", "1"),
        ("pfcp.report_type.erir", "1"),
        ("pfcp.report_type.upir", "1"),
        ("pfcp.report_type.tmir", "0"),
        ("pfcp.ppi", "46"),
        ("pfcp.qfi_value", "0x09"),
        ("pfcp.dl_data_packets_size", "1500"),
        ("pfcp.application_id_str", "video"),
        ("pfcp.flow_desc", "permit out ip from any to any"),
        ("pfcp.f_teid.teid", "0x0a0b0c0d"),
        ("pfcp.srreq_flags.psdbu", "1"),
    ]
}
