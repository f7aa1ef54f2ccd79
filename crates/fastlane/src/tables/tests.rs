use super::*;

fn tables() -> Tables {
    Tables::new(BTreeMap::from([("blocked".to_owned(), 8), ("routes".to_owned(), 4)]), vec![])
}

fn hash(capacity: usize) -> Spec {
    Spec::hash::<u32, u64>("blocked", capacity)
}

#[test]
fn a_table_is_made_once_and_lanes_cannot_write_it() {
    let tables = tables();
    let first = tables.part("blocked", Role::Table, hash).unwrap();
    let second = tables.part("blocked", Role::Table, hash).unwrap();
    assert!(Arc::ptr_eq(&first, &second) && !first.is_writable());
    let state = |capacity| Spec::state::<2>("blocked", capacity, 3);
    assert!(tables.part("blocked", Role::State, state).unwrap().is_writable());
    assert_eq!(tables.unused(), ["routes"]);
    let (facts, descriptors) = tables.to_read();
    assert_eq!((facts.len(), facts[0].parts.len(), descriptors.len()), (1, 2, 2));
    assert!(SharedMemory::attach_writable(descriptors[0].try_clone().unwrap()).is_err());
    let (_, descriptors) = tables.to_write(&["blocked".to_owned()]).unwrap();
    let writable = SharedMemory::attach_writable(descriptors[0].try_clone().unwrap()).unwrap();
    assert_eq!(Spec::of(&Arc::new(writable)).unwrap().capacity, 8);
    assert!(tables.to_write(&["routes".to_owned()]).unwrap_err().contains("there are blocked"));
}

#[test]
fn other_types_and_other_names_are_refused() {
    let tables = tables();
    let _ = tables.part("blocked", Role::Table, hash).unwrap();
    let other = |capacity| Spec::hash::<u32, u32>("blocked", capacity);
    let error = tables.part("blocked", Role::Table, other).unwrap_err().to_string();
    assert_eq!(error, "tables.blocked: its value size is 8, requested is 4");
    let error = tables.part("block", Role::Table, hash).unwrap_err().to_string();
    assert!(error.contains("\"block\": { \"capacity\": 1024 }"), "{error}");
    assert!(error.ends_with("did you mean `blocked`?"), "{error}");
}

#[test]
fn what_was_kept_is_used_if_it_fits() {
    let keep = |capacity: usize| {
        let memory = hash(capacity).create().unwrap();
        let descriptor = memory.as_fd().try_clone_to_owned().unwrap();
        (memory, InheritedPart { table: "blocked".to_owned(), role: Role::Table, descriptor })
    };
    for (capacity, used) in [(8, true), (9, false)] {
        let (memory, part) = keep(capacity);
        let planned = BTreeMap::from([("blocked".to_owned(), 8)]);
        let tables = Tables::new(planned, vec![part]);
        let now = tables.part("blocked", Role::Table, hash).unwrap();
        assert_eq!(Spec::of(&now).unwrap().capacity, 8);
        assert_eq!(Spec::of(&now).unwrap().seed == Spec::of(&memory).unwrap().seed, used);
    }
}
