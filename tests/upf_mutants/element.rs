//! PFCP messages as trees of IEs, so that mutations keep the structure of a message.

use fastlane_pfcp::{Ie, IeType};

use crate::random::Random;

/// An IE.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    ie_type: IeType,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Octets(Vec<u8>),
    Group(Vec<Element>),
}

/// Returns an IE with a raw value.
pub(crate) fn raw(ie_type: IeType, value: &[u8]) -> Element {
    Element { ie_type, value: Value::Octets(value.to_vec()) }
}

/// Returns an IE with an encoded value.
pub(crate) fn leaf<'a, T: Ie<'a>>(ie: &T) -> Element {
    let mut value = Vec::new();
    ie.encode(&mut value);
    Element { ie_type: T::TYPE, value: Value::Octets(value) }
}

/// Returns a grouped IE.
pub(crate) fn group(ie_type: IeType, elements: Vec<Element>) -> Element {
    Element { ie_type, value: Value::Group(elements) }
}

/// Appends IEs to `to`. A length that does not fit its field is truncated.
pub(crate) fn write(elements: &[Element], to: &mut Vec<u8>) {
    for element in elements {
        to.extend(element.ie_type.0.to_be_bytes());
        let at = to.len();
        to.extend([0, 0]);
        match &element.value {
            Value::Octets(octets) => to.extend(octets),
            Value::Group(inside) => write(inside, to),
        }
        let length = (to.len() - at - 2) as u16;
        to[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

/// Mutates one IE at any depth. `others` are IEs of other messages, which may be inserted.
pub(crate) fn change(random: &mut Random, elements: &mut Vec<Element>, others: &[Element]) {
    let at = random.below(elements.len());
    if let Some(Element { value: Value::Group(inside), .. }) = elements.get_mut(at)
        && !random.is_one_in(4)
    {
        return change(random, inside, others);
    }
    if elements.is_empty() {
        return elements.extend((!others.is_empty()).then(|| random.pick(others).clone()));
    }
    match random.below(10) {
        0 => elements.insert(at, elements[at].clone()),
        1 => drop(elements.remove(at)),
        2 => {
            let other = random.below(elements.len());
            elements.swap(at, other);
        }
        3 if !others.is_empty() => elements.insert(at, random.pick(others).clone()),
        4 => {
            // Nest an IE into another one or into a new group.
            let one = elements.remove(at);
            let into = random.below(elements.len());
            match elements.get_mut(into).map(|it| &mut it.value) {
                Some(Value::Group(inside)) => inside.push(one),
                _ => elements.push(group(one.ie_type, vec![one])),
            }
        }
        5 => elements[at].ie_type = IeType(random.below(330) as u16),
        6 => elements[at].value = Value::Octets(random.octets(40)),
        _ => match &mut elements[at].value {
            Value::Octets(octets) => random.mutate(octets),
            Value::Group(inside) => inside.truncate(random.below(inside.len())),
        },
    }
}
