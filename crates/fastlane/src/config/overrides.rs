//! Overrides of the command line: `--set PATH=VALUE`.

use serde_json::{Map, Value};

use crate::Error;

/// Sets one value. It is parsed as JSON, or taken as a string if it is not JSON. Missing objects of
/// the path are created.
///
/// `ports.wire.driver=af-packet` renames the driver and keeps its settings.
/// `ports.wire.driver.tap.name=x` replaces another driver.
pub(super) fn apply(root: &mut Value, change: &str) -> Result<(), Error> {
    let bad =
        |reason: &str| Error::Override { change: change.to_owned(), reason: reason.to_owned() };
    let (path, text) = change.split_once('=').ok_or_else(|| bad("there is no `=` in it"))?;
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let keys: Vec<&str> = path.split('.').collect();
    if keys.iter().any(|key| key.is_empty()) {
        return Err(bad("a key in its path is empty"));
    }
    let Some((last, way)) = keys.split_last() else { return Err(bad("its path is empty")) };
    // `driver` and `kernel` of a port are objects with one key.
    let is_choice = |depth| depth == 3 && keys[0] == "ports";
    let mut at = root;
    for (depth, key) in way.iter().enumerate() {
        at = step(at, key, is_choice(depth))
            .ok_or_else(|| bad(&format!("`{key}` is not inside an object or list")))?;
    }
    if keys.len() == 3 && keys[0] == "ports" && *last == "driver" {
        return set_driver(at, value).ok_or_else(|| bad("the port has no driver to change"));
    }
    let slot = step(at, last, is_choice(way.len()))
        .ok_or_else(|| bad(&format!("`{last}` is not inside an object or list")))?;
    *slot = value;
    Ok(())
}

/// Returns the member `key`, created if missing. With `only` it replaces all other members.
fn step<'a>(at: &'a mut Value, key: &str, only: bool) -> Option<&'a mut Value> {
    if at.is_null() {
        *at = Value::Object(Map::new());
    }
    match at {
        Value::Object(map) => {
            if only && !map.contains_key(key) {
                map.clear();
            }
            Some(map.entry(key).or_insert(Value::Null))
        }
        Value::Array(list) => list.get_mut(key.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Sets the driver of a port: a string renames it, an object replaces it.
fn set_driver(port: &mut Value, value: Value) -> Option<()> {
    let driver = port.as_object_mut()?.entry("driver").or_insert_with(|| Value::Object(Map::new()));
    *driver = match value {
        Value::String(name) => {
            let settings = driver.as_object_mut()?.values_mut().next().map(Value::take);
            let settings = settings.unwrap_or_else(|| Value::Object(Map::new()));
            Value::Object(Map::from_iter([(name, settings)]))
        }
        whole => whole,
    };
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(change: &str) -> Value {
        let mut value = json!({"ports": {"wire": {"driver": {"af-xdp": {"interface": "eth0"}}}}});
        apply(&mut value, change).unwrap();
        value
    }

    #[test]
    fn a_word_changes_the_mechanism() {
        let value = changed("ports.wire.driver=af-packet");
        assert_eq!(value["ports"]["wire"]["driver"], json!({"af-packet": {"interface": "eth0"}}));
        let value = changed("ports.wire.driver.tap.name=t0");
        assert_eq!(value["ports"]["wire"]["driver"], json!({"tap": {"name": "t0"}}));
        let value = changed("ports.wire.driver.tap={}");
        assert_eq!(value["ports"]["wire"]["driver"], json!({"tap": {}}));
        let value = changed("ports.wire.driver.af-xdp.mode=auto");
        let whole = json!({"af-xdp": {"interface": "eth0", "mode": "auto"}});
        assert_eq!(value["ports"]["wire"]["driver"], whole);
    }

    #[test]
    fn values_are_json_or_plain_strings() {
        assert_eq!(changed("lanes.cpus=[0,1]")["lanes"]["cpus"], json!([0, 1]));
        let value = changed("ports.wire.driver.af-xdp.interface=eth1");
        assert_eq!(value["ports"]["wire"]["driver"]["af-xdp"]["interface"], "eth1");
    }

    #[test]
    fn what_is_no_change_is_refused() {
        for change in ["lanes", "=1", "lanes..burst=1", "ports.wire.driver.af-xdp.interface.x=1"] {
            assert!(apply(&mut changed("name=x"), change).is_err(), "{change}");
        }
    }
}
