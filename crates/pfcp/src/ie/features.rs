//! Features of the UP function and of the CP function (TS 29.244 clauses 8.2.25 and 8.2.58).

use alloc::vec::Vec;

use super::Ie;
use crate::{Cause, IeType};

flags! {
    /// Features of the UP function (clause 8.2.25).
    UpFunctionFeatures[2] = UP_FUNCTION_FEATURES {
        BUCP = 0, "Downlink data buffering in the CP function.";
        DDND = 1, "The buffering parameter Downlink Data Notification Delay.";
        DLBD = 2, "The buffering parameter DL Buffering Duration.";
        TRST = 3, "Traffic steering.";
        FTUP = 4, "F-TEIDs are allocated in the UP function.";
        PFDM = 5, "The PFD Management procedure.";
        HEEU = 6, "Header enrichment of uplink traffic.";
        TREU = 7, "Traffic redirection enforcement.";
        EMPU = 8, "Sending of end markers.";
        PDIU = 9, "PDI optimisation: traffic endpoints.";
        UDBC = 10, "Uplink and downlink buffering control: the Suggested Buffering Packets Count.";
        QUOAC = 11, "Quota actions.";
        TRACE = 12, "Trace.";
        FRRT = 13, "Framed routing.";
        PFDE = 14, "A PFD with several properties.";
        EPFAR = 15, "Enhanced association release.";
        DPDRA = 16, "Deferred activation of PDRs.";
        ADPDP = 17, "Activation and deactivation of predefined PDRs.";
        UEIP = 18, "UE addresses are allocated in the UP function.";
        SSET = 19, "Sessions are controlled by the SMFs of a set.";
        MNOP = 20, "Numbers of packets are measured.";
        MTE_N4 = 21, "Several traffic endpoints of a local F-TEID and QFI.";
        BUNDL = 22, "Bundling of messages.";
        GCOM = 23, "5G VN group communication.";
        MPAS = 24, "Several associations with an SMF set.";
        RTTL = 25, "Redundant transmission at transport layer.";
        VTIME = 26, "Quota validity time.";
        NORP = 27, "Number of reports.";
        IPTV = 28, "IPTV.";
        IP6PL = 29, "UE IPv6 prefixes of other lengths than 64, and several UE addresses in a PDI.";
        TSCU = 30, "Time sensitive communication.";
        MPTCP = 31, "MPTCP proxy.";
        ATSSS_LL = 32, "ATSSS-LL steering.";
        QFQM = 33, "QoS monitoring of QoS flows.";
        GPQM = 34, "QoS monitoring of GTP-U paths.";
        MT_EDT = 35, "Size of downlink data of mobile terminated early data.";
        CIOT = 36, "Cellular internet of things.";
        ETHAR = 37, "Ethernet anchor relocation.";
        DDDS = 38, "Reporting of the first buffered or discarded downlink packet.";
        RDS = 39, "Reliable data service.";
        RTTWP = 40, "Round trip times towards the UE without PMF.";
        QUASF = 41, "URR with an exempted PDR or application.";
        NSPOC = 42, "Notifies the start of pausing of charging.";
        L2TP = 43, "L2TP.";
        UPBER = 44, "Uplink buffering during EAS relocation.";
        RESPS = 45, "Restoration of sessions.";
        IPREP = 46, "Replacement of IP address and port.";
        DNSTS = 47, "Steering of DNS queries.";
        DRQOS = 48, "Direct reporting of QoS monitoring.";
        MBSN4 = 49, "MBS sessions by N4.";
        PSUPRM = 50, "Usage reports after the deletion of a session are enhanced.";
        EPPI = 51, "Enhanced paging policy differentiation.";
        RATP = 52, "Redirection of ATSSS packets.";
        UPIDP = 53, "User plane inactivity by URR.";
    }
    /// Features of the CP function (clause 8.2.58).
    CpFunctionFeatures[1] = CP_FUNCTION_FEATURES {
        LOAD = 0, "Load control.";
        OVRL = 1, "Overload control.";
        EPFAR = 2, "Enhanced association release.";
        SSET = 3, "Sessions are controlled by the SMFs of a set.";
        BUNDL = 4, "Bundling of messages.";
        MPAS = 5, "Several associations with an SMF set.";
        ARDR = 6, "Additional usage reports in session deletion.";
        UIAUR = 7, "UPF-initiated association update with addresses.";
        PSUCC = 8, "Session establishment or modification is partly accepted.";
        RPGUR = 9, "Peer GTP-U entity restart.";
    }
}
