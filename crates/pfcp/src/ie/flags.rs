//! Elements that are bit flags.

use alloc::vec::Vec;

use super::Ie;
use crate::{Cause, IeType};

flags! {
    /// Apply Action: handling of packets (clause 8.2.26); one octet or two.
    ApplyAction[2] = APPLY_ACTION {
        DROP = 0, "Drop.";
        FORW = 1, "Forward.";
        BUFF = 2, "Buffer.";
        NOCP = 3, "Notify the control plane of the first downlink packet.";
        DUPL = 4, "Duplicate.";
        IPMA = 5, "IP multicast accept.";
        IPMD = 6, "IP multicast deny.";
        DFRT = 7, "Duplicate for redundant transmission.";
        EDRT = 8, "Eliminate duplicates of redundant transmission.";
        BDPN = 9, "Buffered downlink packet notification.";
        DDPN = 10, "Discarded downlink packet notification.";
        FSSM = 11, "Forward to lower layer SSM.";
        MBSU = 12, "Forward to MBS unicast tunnels.";
    }
    /// Reporting Triggers: events on which a URR reports (clause 8.2.19).
    ReportingTriggers[3] = REPORTING_TRIGGERS {
        PERIO = 0, "Periodic reporting.";
        VOLTH = 1, "Volume threshold.";
        TIMTH = 2, "Time threshold.";
        QUHTI = 3, "Quota holding time.";
        START = 4, "Start of traffic.";
        STOPT = 5, "Stop of traffic.";
        DROTH = 6, "Dropped downlink traffic threshold.";
        LIUSA = 7, "Linked usage reporting.";
        VOLQU = 8, "Volume quota.";
        TIMQU = 9, "Time quota.";
        ENVCL = 10, "Envelope closure.";
        MACAR = 11, "MAC addresses.";
        EVETH = 12, "Event threshold.";
        EVEQU = 13, "Event quota.";
        IPMJL = 14, "IP multicast join or leave.";
        QUVTI = 15, "Quota validity time.";
        REEMR = 16, "Report the end marker reception.";
        UPINT = 17, "User plane inactivity timer.";
    }
    /// Usage Report Trigger: event that caused a usage report (clause 8.2.41).
    UsageReportTrigger[3] = USAGE_REPORT_TRIGGER {
        PERIO = 0, "Periodic reporting.";
        VOLTH = 1, "Volume threshold.";
        TIMTH = 2, "Time threshold.";
        QUHTI = 3, "Quota holding time.";
        START = 4, "Start of traffic.";
        STOPT = 5, "Stop of traffic.";
        DROTH = 6, "Dropped downlink traffic threshold.";
        IMMER = 7, "Immediate report, because the control plane asked.";
        VOLQU = 8, "Volume quota.";
        TIMQU = 9, "Time quota.";
        LIUSA = 10, "Linked usage reporting.";
        TERMR = 11, "Termination: the URR or the session is gone.";
        MONIT = 12, "Monitoring time.";
        ENVCL = 13, "Envelope closure.";
        MACAR = 14, "MAC addresses.";
        EVETH = 15, "Event threshold.";
        EVEQU = 16, "Event quota.";
        TEBUR = 17, "Termination by the UPF.";
        IPMJL = 18, "IP multicast join or leave.";
        QUVTI = 19, "Quota validity time.";
        EMRRE = 20, "End marker received.";
        UPINT = 21, "User plane inactivity timer.";
    }
    /// Report Type: contents of a session report (clause 8.2.21).
    ReportType[1] = REPORT_TYPE {
        DLDR = 0, "Downlink data.";
        USAR = 1, "Usage.";
        ERIR = 2, "Error indication.";
        UPIR = 3, "User plane inactivity.";
        TMIR = 4, "TSC management information.";
        SESR = 5, "Session report.";
        UISR = 6, "The UPF asks to release the session.";
    }
    /// Requests in a session modification (clause 8.2.31).
    PfcpsmreqFlags[1] = PFCPSMREQ_FLAGS {
        DROBU = 0, "Drop buffered packets.";
        SNDEM = 1, "Send end markers.";
        QAURR = 2, "Query all URRs.";
        SUMPC = 3, "Stop the usage measurement to pause charging.";
        RUMUC = 4, "Resume the usage measurement.";
        DETEID = 5, "Delete all tunnels of N3 and N9.";
        HRSBOM = 6, "Home routed session breakout: modify.";
    }
    /// Requests in a session report response (clause 8.2.32).
    PfcpsrrspFlags[1] = PFCPSRRSP_FLAGS {
        DROBU = 0, "Drop buffered packets.";
    }
    /// Measurement Method: quantities that a URR measures (clause 8.2.40).
    MeasurementMethod[1] = MEASUREMENT_METHOD {
        DURAT = 0, "Duration.";
        VOLUM = 1, "Volume.";
        EVENT = 2, "Events.";
    }
    /// Usage Information: period or point of the measured usage (clause 8.2.59).
    UsageInformation[1] = USAGE_INFORMATION {
        BEF = 0, "Before the monitoring time.";
        AFT = 1, "After the monitoring time.";
        UAE = 2, "After QoS enforcement.";
        UBE = 3, "Before QoS enforcement.";
    }
    /// Measurement Information: options of a URR's measurement (clause 8.2.68).
    MeasurementInformation[1] = MEASUREMENT_INFORMATION {
        MBQE = 0, "Measure before QoS enforcement.";
        INAM = 1, "Inactive measurement.";
        RADI = 2, "Reduced application detection information.";
        ISTM = 3, "Immediate start of time metering.";
        MNOP = 4, "Measure the number of packets.";
        SSPOC = 5, "Stop the measurement when charging is paused.";
        ASPOC = 6, "Applicable to the session when charging is paused.";
        CIAM = 7, "Count in accordance with the access.";
    }
    /// Node Report Type: contents of a node report (clause 8.2.69).
    NodeReportType[1] = NODE_REPORT_TYPE {
        UPFR = 0, "User plane path failure.";
        UPRR = 1, "User plane path recovery.";
        CKDR = 2, "Clock drift.";
        GPQR = 3, "GTP-U path QoS.";
        PURR = 4, "Peer UP restart.";
        VSR = 5, "Vendor-specific.";
    }
    /// Scope of overload control information (clause 8.2.76).
    OciFlags[1] = OCI_FLAGS {
        AOCI = 0, "Associate the information with the Node ID.";
    }
    /// Release of an association on request of the UPF (clause 8.2.77).
    PfcpAssociationReleaseRequest[1] = PFCP_ASSOCIATION_RELEASE_REQUEST {
        SARR = 0, "The association shall be released.";
        URSS = 1, "The UPF reports the usage of all sessions before.";
    }
    /// Reflective QoS (clause 8.2.88).
    Rqi[1] = RQI {
        RQI = 0, "Packets are marked with the reflective QoS indicator.";
    }
    /// Proxying: neighbor resolution that the UPF answers for a UE (clause 8.2.97).
    Proxying[1] = PROXYING {
        ARP = 0, "Address resolution protocol.";
        INS = 1, "IPv6 neighbour solicitation.";
    }
    /// Properties of an Ethernet filter (clause 8.2.99).
    EthernetFilterProperties[1] = ETHERNET_FILTER_PROPERTIES {
        BIDE = 0, "For both directions.";
    }
    /// Kind of an Ethernet PDU session (clause 8.2.102).
    EthernetPduSessionInformation[1] = ETHERNET_PDU_SESSION_INFORMATION {
        ETHI = 0, "An Ethernet PDU session.";
    }
    /// Flags of a session report request (clause 8.2.119).
    PfcpsrreqFlags[1] = PFCPSRREQ_FLAGS {
        PSDBU = 0, "The session was deleted by the UPF.";
    }
    /// Flags of an association update request (clause 8.2.120).
    PfcpaureqFlags[1] = PFCPAUREQ_FLAGS {
        PARPS = 0, "A release is prepared.";
    }
    /// Flags of an association setup response (clause 8.2.134).
    PfcpasrspFlags[1] = PFCPASRSP_FLAGS {
        PSREI = 0, "Sessions were retained.";
        UUPSI = 1, "The UPF is configured for inter-PLMN user plane security.";
    }
    /// Flags of a session establishment request (clause 8.2.136).
    PfcpsereqFlags[1] = PFCPSEREQ_FLAGS {
        RESTI = 0, "The session is restored: its F-TEIDs and addresses are the control plane's.";
        SUMPC = 1, "Stop the usage measurement to pause charging.";
        HRSBOM = 2, "Home routed session breakout.";
    }
    /// Additional control options of a QER.
    QerControlIndications[1] = QER_CONTROL_INDICATIONS {
        RCSR = 0, "Rate control status reporting.";
        MOED = 1, "Reports the maximum of exception data.";
        NORD = 2, "No rate control of downlink data.";
    }
    /// Flags of an association setup request.
    PfcpasreqFlags[1] = PFCPASREQ_FLAGS {
        UUPSI = 0, "The UPF is configured for inter-PLMN user plane security.";
    }
    /// Handling of the first downlink packets.
    DataStatus[1] = DATA_STATUS {
        DROP = 0, "The first downlink packet was dropped.";
        BUFF = 1, "The first downlink packet was buffered.";
    }
    /// Flags of a session deletion response.
    PfcpsdrspFlags[1] = PFCPSDRSP_FLAGS {
        PURU = 0, "Usage reports of this session are still to come.";
    }
}
