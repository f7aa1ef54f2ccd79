//! The shapes and labels of pictures, as SVG text.

use std::fmt::{self, Write};

use crate::statistics::quantile;

/// Height of a bar, in pixels.
pub const BAR: f64 = 13.0;

/// Approximate width of a letter, in pixels.
const LETTER: f64 = 6.3;

/// Returns the approximate width of `words`, in pixels.
#[must_use]
pub fn width(words: &str) -> f64 {
    LETTER * words.chars().count() as f64
}

/// Writes the start of a white picture with the given size in pixels. [`close`] ends it.
///
/// # Errors
/// Returns an error if `text` cannot be written; writing to a string never fails.
pub fn open(text: &mut impl Write, width: f64, height: f64) -> fmt::Result {
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"
    )
}

/// Writes the end of a picture.
///
/// # Errors
/// Returns the same errors as [`open`].
pub fn close(text: &mut impl Write) -> fmt::Result {
    writeln!(text, "</svg>")
}

/// Writes words at a point; `anchor` is `start`, `middle` or `end`.
///
/// # Errors
/// Returns the same errors as [`open`].
pub fn label(text: &mut impl Write, x: f64, y: f64, anchor: &str, words: &str) -> fmt::Result {
    let words = escape(words);
    writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>")
}

/// Draws a bar from `left` whose length is the median of `values` times `scale`, with a whisker
/// between the quartiles.
///
/// # Errors
/// Returns the same errors as [`open`].
pub fn bar(
    text: &mut impl Write,
    [left, y]: [f64; 2],
    values: &[f64],
    scale: f64,
    colour: &str,
) -> fmt::Result {
    let [low, middle, high] = [0.25, 0.5, 0.75].map(|at| quantile(values, at) * scale);
    let centre = y + BAR / 2.0;
    writeln!(
        text,
        "<rect x=\"{left}\" y=\"{y:.1}\" width=\"{middle:.1}\" height=\"{BAR}\" \
         fill=\"{colour}\"/>\n\
         <path d=\"M{:.1} {centre:.1}H{:.1}M{:.1} {:.1}v6M{:.1} {:.1}v6\" stroke=\"black\"/>",
        left + low,
        left + high,
        left + low,
        centre - 3.0,
        left + high,
        centre - 3.0,
    )
}

/// Escapes the characters that have a meaning in SVG.
#[must_use]
pub fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_no_markup() {
        let mut text = String::new();
        label(&mut text, 1.0, 2.0, "end", "a <b> & c").unwrap();
        let expected = "<text x=\"1.0\" y=\"2.0\" text-anchor=\"end\">a &lt;b&gt; &amp; c</text>\n";
        assert_eq!(text, expected);
    }
}
