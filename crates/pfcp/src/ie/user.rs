//! Identity of the UE (TS 29.244 clause 8.2.101).

use alloc::vec::Vec;

use super::{Ie, Octets, bit, put_string8};
use crate::{Cause, IeType};

/// User ID. Each field has at most 255 octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserId<'a> {
    /// IMSI, two digits per octet, the lower half first.
    pub imsi: Option<&'a [u8]>,
    /// IMEI, encoded as the IMSI.
    pub imei: Option<&'a [u8]>,
    /// MSISDN, encoded as the IMSI.
    pub msisdn: Option<&'a [u8]>,
    /// Network access identifier, as text.
    pub nai: Option<&'a [u8]>,
    /// SUPI, as text (TS 29.571).
    pub supi: Option<&'a [u8]>,
    /// GPSI, as text (TS 29.571).
    pub gpsi: Option<&'a [u8]>,
    /// PEI, as text (TS 29.571).
    pub pei: Option<&'a [u8]>,
}

impl<'a> UserId<'a> {
    const fn fields(&self) -> [Option<&'a [u8]>; 7] {
        [self.imsi, self.imei, self.msisdn, self.nai, self.supi, self.gpsi, self.pei]
    }
}

impl<'a> Ie<'a> for UserId<'a> {
    const TYPE: IeType = IeType::USER_ID;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let mut field = |number: u8| octets.when(flags >> number & 1 != 0, Octets::string8);
        Ok(Self {
            imsi: field(0)?,
            imei: field(1)?,
            msisdn: field(2)?,
            nai: field(3)?,
            supi: field(4)?,
            gpsi: field(5)?,
            pei: field(6)?,
        })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let fields = self.fields();
        let flags =
            (0..7).zip(fields).fold(0, |flags, (at, field)| flags | bit(field.is_some(), at));
        to.push(flags);
        for field in fields.into_iter().flatten() {
            put_string8(to, field);
        }
    }
}
