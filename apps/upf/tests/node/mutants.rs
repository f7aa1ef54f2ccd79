//! Mutants of a PFCP message: bits, ends, lengths, and elements at every depth.

/// Grouped elements whose children are mutated (TS 29.244, 8.1.2): rules, PDI, forwarding
/// parameters, and those of updates and removals.
const GROUPED: [u16; 20] =
    [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13, 14, 15, 16, 17, 18, 77, 85, 86, 183];

/// Name of the mutant that is the message itself.
pub(crate) const UNCHANGED: &str = "as it was";

/// Element of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Element {
    kind: u16,
    value: Vec<u8>,
    children: Option<Vec<Element>>,
}

impl Element {
    fn parse_all(mut octets: &[u8]) -> Option<Vec<Self>> {
        let mut all = Vec::new();
        while !octets.is_empty() {
            let (head, rest) = octets.split_first_chunk::<4>()?;
            let kind = u16::from_be_bytes([head[0], head[1]]);
            let (value, after) =
                rest.split_at_checked(u16::from_be_bytes([head[2], head[3]]).into())?;
            let children = GROUPED.contains(&kind).then(|| Self::parse_all(value)).flatten();
            all.push(Self { kind, value: value.to_vec(), children });
            octets = after;
        }
        Some(all)
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let mut value = self.value.clone();
        if let Some(children) = &self.children {
            value.clear();
            children.iter().for_each(|child| child.encode(&mut value));
        }
        to.extend(self.kind.to_be_bytes());
        to.extend((value.len() as u16).to_be_bytes());
        to.extend(value);
    }
}

/// Returns the length of the header.
pub(crate) const fn header_length(datagram: &[u8]) -> usize {
    if datagram[0] & 1 == 1 { 16 } else { 8 }
}

/// Returns a datagram whose header has the length of the rest.
fn with_length(mut datagram: Vec<u8>) -> Vec<u8> {
    let length = (datagram.len() - 4) as u16;
    datagram[2..4].copy_from_slice(&length.to_be_bytes());
    datagram
}

/// Calls `visit` with each mutant of a message and the change that made it. `bits` are those that
/// are flipped in each octet, by its position.
pub(crate) fn visit_all(
    datagram: &[u8],
    bits: &dyn Fn(usize) -> Vec<u8>,
    visit: &mut dyn FnMut(&str, Vec<u8>),
) {
    for at in 0..datagram.len() {
        for bit in bits(at) {
            let mut mutant = datagram.to_vec();
            mutant[at] ^= 1 << bit;
            visit(&format!("bit {bit} of octet {at}"), mutant);
        }
    }
    let header = header_length(datagram);
    for end in 0..datagram.len() {
        visit(&format!("cut at {end}"), datagram[..end].to_vec());
        if end >= header {
            visit(&format!("ended at {end}"), with_length(datagram[..end].to_vec()));
        }
    }
    let all = Element::parse_all(&datagram[header..]).expect("a recorded message has elements");
    let show = &mut |change: &str, elements: &[Element]| {
        let mut mutant = datagram[..header].to_vec();
        elements.iter().for_each(|element| element.encode(&mut mutant));
        visit(change, with_length(mutant));
    };
    show(UNCHANGED, &all);
    of_elements(&all, show);
    of_lengths(datagram, visit);
}

/// Calls `show` with the elements of a group after each change of one of them.
fn of_elements(elements: &[Element], show: &mut dyn FnMut(&str, &[Element])) {
    let mut reversed = elements.to_vec();
    reversed.reverse();
    show("reversed", &reversed);
    for at in 0..elements.len() {
        let mut changed = elements.to_vec();
        let one = changed.remove(at);
        let kind = one.kind;
        show(&format!("without {kind} at {at}"), &changed);
        changed.insert(0, one.clone());
        show(&format!("{kind} at {at} first"), &changed);
        changed.insert(0, one.clone());
        show(&format!("{kind} at {at} twice"), &changed);
        for other in [0x7fff, 0x8001, 0, kind ^ 1] {
            let mut changed = elements.to_vec();
            changed[at].kind = other;
            show(&format!("{kind} at {at} as {other}"), &changed);
        }
        for (change, value) in [
            ("empty", Vec::new()),
            ("of zeros", vec![0; one.value.len()]),
            ("of ones", vec![0xff; one.value.len()]),
            ("longer", [&one.value[..], &[0; 3]].concat()),
        ] {
            let mut changed = elements.to_vec();
            changed[at] = Element { kind, value, children: None };
            show(&format!("{kind} at {at} {change}"), &changed);
        }
        if let Some(children) = &one.children {
            of_elements(children, &mut |change, children| {
                let mut changed = elements.to_vec();
                changed[at].children = Some(children.to_vec());
                show(&format!("{change} in {kind} at {at}"), &changed);
            });
        }
    }
}

/// Calls `visit` with mutants in which one length field lies; everything else stays.
fn of_lengths(datagram: &[u8], visit: &mut dyn FnMut(&str, Vec<u8>)) {
    let mut fields = vec![2];
    length_fields(datagram, header_length(datagram), datagram.len(), &mut fields);
    for at in fields {
        let length = u16::from_be_bytes([datagram[at], datagram[at + 1]]);
        let lies = [0, 1, length.wrapping_sub(1), length + 1, length + 4, length * 2, u16::MAX];
        for lie in lies.into_iter().filter(|lie| *lie != length) {
            let mut mutant = datagram.to_vec();
            mutant[at..at + 2].copy_from_slice(&lie.to_be_bytes());
            visit(&format!("length {lie} at {at}"), mutant);
        }
    }
}

/// Appends the positions of the length fields of all elements between two positions.
fn length_fields(datagram: &[u8], mut at: usize, end: usize, to: &mut Vec<usize>) {
    while at + 4 <= end {
        let kind = u16::from_be_bytes([datagram[at], datagram[at + 1]]);
        let length = usize::from(u16::from_be_bytes([datagram[at + 2], datagram[at + 3]]));
        to.push(at + 2);
        if GROUPED.contains(&kind) {
            length_fields(datagram, at + 4, at + 4 + length, to);
        }
        at += 4 + length;
    }
}
