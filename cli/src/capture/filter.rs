//! Capture filters, compiled by tcpdump.

use std::io::ErrorKind;
use std::process::Command;

/// Classic BPF instructions in the form of a capture request.
type Program = Vec<(u16, u8, u8, u32)>;

/// Compiles an expression of pcap-filter(7). Returns `None` if it is empty.
pub(super) fn compile(expression: &str) -> Result<Option<Program>, String> {
    if expression.trim().is_empty() {
        return Ok(None);
    }
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-ddd", "-y", "EN10MB", "--", expression]);
    let output = tcpdump.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            "a filter takes tcpdump to compile it; install it: apt install tcpdump".to_owned()
        }
        _ => format!("tcpdump, which compiles filters, cannot be run: {error}"),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("tcpdump: ").replace(char::is_control, " ");
        return Err(format!("the filter `{expression}`: {said}; see pcap-filter(7)"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).map(Some).ok_or_else(|| {
        format!("the filter `{expression}`: tcpdump's answer is not understood: {text}")
    })
}

/// Parses the output of `tcpdump -ddd`: the number of instructions, then one per line.
fn parse(text: &str) -> Option<Program> {
    let mut lines = text.lines();
    let count: usize = lines.next()?.trim().parse().ok()?;
    let instructions = lines.map(|line| {
        let mut numbers = line.split_whitespace();
        let instruction = (
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
        );
        numbers.next().is_none().then_some(instruction)
    });
    let program = instructions.collect::<Option<Program>>()?;
    (program.len() == count).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tcpdump_writes_is_read() {
        let program = parse("2\n40 0 0 12\n6 0 0 262144\n").unwrap();
        assert_eq!(program, [(40, 0, 0, 12), (6, 0, 0, 262_144)]);
        for wrong in
            ["", "x", "1\n", "1\n6 0 0\n", "1\n6 0 0 1 1\n", "1\n6 0 256 1\n", "0\n6 0 0 0"]
        {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn no_filter_is_no_program() {
        assert_eq!(compile(" "), Ok(None));
    }
}
