//! Elements of downlink data reports and of application detection.

use alloc::vec::Vec;

use super::{Ie, Octets, bit, put_string16};
use crate::{Cause, IeType};

/// Downlink Data Service Information (TS 29.244 clause 8.2.27) of a buffered packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DownlinkDataServiceInformation {
    /// DSCP of the packet, as the paging policy indication; 6 bits.
    pub paging_policy_indication: Option<u8>,
    /// QoS flow of the packet; 6 bits.
    pub qfi: Option<u8>,
}

impl Ie<'_> for DownlinkDataServiceInformation {
    const TYPE: IeType = IeType::DOWNLINK_DATA_SERVICE_INFORMATION;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let ppi = octets.when(flags & 1 != 0, Octets::u8)?;
        let qfi = octets.when(flags & 2 != 0, Octets::u8)?;
        let six = |octet: u8| octet & 0x3f;
        Ok(Self { paging_policy_indication: ppi.map(six), qfi: qfi.map(six) })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let ppi = self.paging_policy_indication;
        to.push(bit(ppi.is_some(), 0) | bit(self.qfi.is_some(), 1));
        to.extend(ppi.into_iter().chain(self.qfi).map(|octet| octet & 0x3f));
    }
}

/// PFD Contents (clause 8.2.39): detection of an application's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PfdContents<'a> {
    /// Packet filter, as an IPFilterRule.
    pub flow_description: Option<&'a [u8]>,
    /// Pattern for URLs.
    pub url: Option<&'a [u8]>,
    /// Domain name.
    pub domain_name: Option<&'a [u8]>,
    /// Custom PFD content, defined by the operator.
    pub custom: Option<&'a [u8]>,
    /// Protocol in which the domain name is matched.
    pub domain_name_protocol: Option<&'a [u8]>,
    /// Additional flow descriptions, each after its length in two octets.
    pub more_flow_descriptions: Option<&'a [u8]>,
    /// Additional URL patterns, each after its length in two octets.
    pub more_urls: Option<&'a [u8]>,
    /// Additional domain names and protocols, each after its length in two octets.
    pub more_domain_names: Option<&'a [u8]>,
}

impl<'a> PfdContents<'a> {
    const fn fields(&self) -> [Option<&'a [u8]>; 8] {
        [
            self.flow_description,
            self.url,
            self.domain_name,
            self.custom,
            self.domain_name_protocol,
            self.more_flow_descriptions,
            self.more_urls,
            self.more_domain_names,
        ]
    }
}

impl<'a> Ie<'a> for PfdContents<'a> {
    const TYPE: IeType = IeType::PFD_CONTENTS;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let [flags, _] = octets.array()?;
        let mut field = |number: u8| octets.when(flags >> number & 1 != 0, Octets::string16);
        Ok(Self {
            flow_description: field(0)?,
            url: field(1)?,
            domain_name: field(2)?,
            custom: field(3)?,
            domain_name_protocol: field(4)?,
            more_flow_descriptions: field(5)?,
            more_urls: field(6)?,
            more_domain_names: field(7)?,
        })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let fields = self.fields();
        let flags =
            (0..8).zip(fields).fold(0, |flags, (at, field)| flags | bit(field.is_some(), at));
        to.extend_from_slice(&[flags, 0]);
        for field in fields.into_iter().flatten() {
            put_string16(to, field);
        }
    }
}
