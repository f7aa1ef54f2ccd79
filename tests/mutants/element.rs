//! A PFCP message as a tree of elements, which can be changed where a message means something.

use fastlane_pfcp::{Ie, IeType};

use crate::chance::Chance;

/// An element: a value, or elements.
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

/// An element with this value as it is.
pub(crate) fn raw(ie_type: IeType, value: &[u8]) -> Element {
    Element { ie_type, value: Value::Octets(value.to_vec()) }
}

/// An element.
pub(crate) fn leaf<'a, T: Ie<'a>>(ie: &T) -> Element {
    let mut value = Vec::new();
    ie.encode(&mut value);
    Element { ie_type: T::TYPE, value: Value::Octets(value) }
}

/// A grouped element.
pub(crate) fn group(ie_type: IeType, elements: Vec<Element>) -> Element {
    Element { ie_type, value: Value::Group(elements) }
}

/// Writes elements one after the other. Lengths are right as long as they fit their field.
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

/// Changes one thing about the elements, at any depth. `others` are of other messages.
pub(crate) fn change(chance: &mut Chance, elements: &mut Vec<Element>, others: &[Element]) {
    let at = chance.below(elements.len());
    if let Some(Element { value: Value::Group(inside), .. }) = elements.get_mut(at)
        && !chance.is_one_in(4)
    {
        return change(chance, inside, others);
    }
    if elements.is_empty() {
        return elements.extend((!others.is_empty()).then(|| chance.pick(others).clone()));
    }
    match chance.below(10) {
        0 => elements.insert(at, elements[at].clone()),
        1 => drop(elements.remove(at)),
        2 => {
            let other = chance.below(elements.len());
            elements.swap(at, other);
        }
        3 if !others.is_empty() => elements.insert(at, chance.pick(others).clone()),
        4 => {
            // Into another one, or itself.
            let one = elements.remove(at);
            let into = chance.below(elements.len());
            match elements.get_mut(into).map(|it| &mut it.value) {
                Some(Value::Group(inside)) => inside.push(one),
                _ => elements.push(group(one.ie_type, vec![one])),
            }
        }
        5 => elements[at].ie_type = IeType(chance.below(330) as u16),
        6 => elements[at].value = Value::Octets(chance.octets(40)),
        _ => match &mut elements[at].value {
            Value::Octets(octets) => chance.change(octets),
            Value::Group(inside) => inside.truncate(chance.below(inside.len())),
        },
    }
}
