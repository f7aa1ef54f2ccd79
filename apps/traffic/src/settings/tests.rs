use super::*;

fn read(text: &str) -> Result<Settings, String> {
    let settings: Settings = serde_json::from_str(text).map_err(|error| error.to_string())?;
    settings.check().map_err(|error| error.to_string())?;
    Ok(settings)
}

#[test]
fn one_key_is_enough() {
    let settings = read(r#"{"port": "wire"}"#).unwrap();
    assert_eq!((settings.mode, settings.flows.count), (Mode::RoundTrip, 1));
    assert_eq!(settings.frame_bytes, FrameBytes::One(60));
}

#[test]
fn frame_bytes_are_written_in_three_ways() {
    let bytes = |text: &str| {
        read(&format!(r#"{{"port": "wire", "frame-bytes": {text}}}"#))
            .map(|settings| settings.frame_bytes)
    };
    assert_eq!(bytes("128"), Ok(FrameBytes::One(128)));
    assert_eq!(bytes("[60, 1514]"), Ok(FrameBytes::List(vec![60, 1514])));
    assert_eq!(bytes(r#""imix""#), Ok(FrameBytes::Named(Mix::Imix)));
    assert!(bytes(r#""inix""#).unwrap_err().contains("a list of such numbers, or \"imix\""));
}

#[test]
fn what_cannot_be_meant_is_refused_by_name() {
    for (text, expected) in [
        (r#"{"port": "a", "mode": "one-way"}"#, "app.sink-port: `one-way` needs"),
        (r#"{"port": "a", "sink-port": "b"}"#, "app.sink-port: only `one-way`"),
        (r#"{"port": "a", "mode": "receive"}"#, "app.run: `receive` needs"),
        (r#"{"port": "a", "mode": "send", "outstanding-packets": 1}"#, "app.outstanding"),
        (r#"{"port": "a", "outstanding-packets": 1, "answer-timeout-ms": 0}"#, "app.answer"),
        (r#"{"port": "a", "burst-packets": 0}"#, "app.burst-packets: is 0"),
        (r#"{"port": "a", "window-packets": 100}"#, "app.window-packets: is 100"),
        (r#"{"port": "a", "warm-up-percent": 10}"#, "app.warm-up-percent: is a share"),
        (r#"{"port": "a", "count-packets": 9, "warm-up-percent": 91}"#, "app.warm-up-percent"),
        (r#"{"port": "a", "rate": 1}"#, "unknown field `rate`"),
        (r#"{"port": "a", "flows": {"counts": 1}}"#, "unknown field `counts`"),
        (r#"{"port": "a", "flows": {"source-mac": "1"}}"#, "not a MAC address"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
