//! Where results go: text for people or JSON for programs, and failures.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;

use crate::cli::Global;
use crate::failure::{Failure, FailureKind, Result};

/// The version of the objects that `--json` prints.
pub(crate) const JSON_VERSION: u32 = 1;

/// The form in which results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Text.
    Human,
    /// One object a line.
    Json,
}

impl Output {
    /// Returns the form that the command line asks for.
    pub(crate) fn of(global: &Global) -> Self {
        if global.json { Self::Json } else { Self::Human }
    }

    /// Prints `result` as JSON, or what `human` makes of it.
    pub(crate) fn print<T: Serialize>(
        self,
        result: &T,
        human: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        match self {
            Self::Human => write_out(&human(result)),
            Self::Json => write_out(&json_line(result)?),
        }
    }

    /// Shows `failure` on standard error and, for programs, on standard output.
    pub(crate) fn fail(self, failure: &Failure) {
        // A failure that cannot be shown leaves the exit code to tell; there is no better place.
        let mut err = io::stderr().lock();
        drop(writeln!(err, "error: {}", harmless(&failure.message)));
        for (number, cause) in failure.causes.iter().enumerate() {
            drop(writeln!(err, "  {}: {}", number + 1, harmless(cause)));
        }
        for path in &failure.conflicts {
            drop(writeln!(err, "  {}", harmless(path)));
        }
        if let Some(hint) = &failure.hint {
            drop(writeln!(err, "hint: {}", harmless(hint)));
        }
        if self == Self::Json {
            print_failure(failure);
        }
    }
}

/// Prints `failure` as an object for programs.
pub(crate) fn print_failure(failure: &Failure) {
    let object = serde_json::json!({ "version": JSON_VERSION, "error": failure });
    // As above: the exit code tells it even if this cannot.
    drop(write_out(&format!("{object}\n")));
}

/// Returns `text` as a terminal may see it: a name in it could hold anything.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// Returns `result` as one line with the version in front.
pub(crate) fn json_line<T: Serialize>(result: &T) -> Result<String> {
    let wrong = |reason: String| {
        Failure::new(FailureKind::Internal, "a result cannot be printed").cause(reason)
    };
    let Value::Object(fields) =
        serde_json::to_value(result).map_err(|reason| wrong(reason.to_string()))?
    else {
        return Err(wrong("it is not an object".to_owned()));
    };
    let mut object = serde_json::Map::with_capacity(fields.len() + 1);
    object.insert("version".to_owned(), JSON_VERSION.into());
    object.extend(fields);
    Ok(format!("{}\n", Value::Object(object)))
}

/// Writes `text` to standard output.
pub(crate) fn write_out(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|reason| Failure::io("write to standard output", &reason))
}

/// Tells the user something that is not a result.
pub(crate) fn note(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// Asks a yes-or-no question, if somebody is there to answer it.
pub(crate) fn confirm(question: &str) -> Result<()> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(());
    }
    let mut err = io::stderr();
    let asked = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    asked.map_err(|reason| Failure::io("ask", &reason))?;
    let mut answer = String::new();
    io::stdin()
        .read_line(&mut answer)
        .map_err(|reason| Failure::io("read the answer", &reason))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(FailureKind::Declined, "nothing was changed")),
    }
}

/// Returns a size with a binary unit.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // In tenths of the unit, so that no rounding of large numbers goes through floating point.
    let mut tenths = u128::from(bytes) * 10;
    let mut unit = "B";
    for next in UNITS {
        if tenths < 10_235 {
            break;
        }
        tenths = (tenths + 512) / 1024;
        unit = next;
    }
    if tenths >= 1000 {
        format!("{} {unit}", (tenths + 5) / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// Returns a duration in the unit that suits it.
pub(crate) fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{}.{:02} ms", micros / 1_000, micros % 1_000 / 10),
        1_000_000..60_000_000 => {
            format!(
                "{}.{:02} s",
                micros / 1_000_000,
                micros % 1_000_000 / 10_000
            )
        }
        _ => {
            let seconds = micros / 1_000_000;
            if seconds < 3600 {
                format!("{} min {} s", seconds / 60, seconds % 60)
            } else {
                format!("{} h {} min", seconds / 3600, seconds % 3600 / 60)
            }
        }
    }
}

/// Returns how long ago `micros` since 1970 was.
pub(crate) fn age(micros: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_micros(micros);
    let seconds = SystemTime::now()
        .duration_since(then)
        .unwrap_or_default()
        .as_secs();
    match seconds {
        0..2 => "just now".to_owned(),
        2..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Returns `count` and the word for it.
pub(crate) fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 {
        format!("1 {one}")
    } else {
        format!("{count} {many}")
    }
}

/// Returns `rows` in columns that fit their widest cell, without spaces at the ends of lines.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        let title = head.get(column).map_or(0, |title| title.chars().count());
        cells.max().unwrap_or(0).max(title)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(
                ' ',
                2 + width.saturating_sub(cell.chars().count()),
            ));
        }
        format!("{}\n", text.trim_end())
    };
    let mut text = line(&mut head.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 20, "10.0 MiB"),
            (1023 << 10, "1023 KiB"),
            (150 << 30, "150 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn durations_have_a_fitting_unit() {
        for (micros, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_234, "1.23 ms"),
            (2_500_000, "2.50 s"),
            (61_000_000, "1 min 1 s"),
            (7_260_000_000, "2 h 1 min"),
        ] {
            assert_eq!(duration(micros), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["main".to_owned(), "x".to_owned()],
            vec!["ü".to_owned(), String::new()],
        ];
        assert_eq!(table(&["NAME", "AT"], &rows), "NAME  AT\nmain  x\nü\n");
    }

    #[test]
    fn json_has_the_version_and_no_line_break_inside() {
        let line = json_line(&serde_json::json!({ "a": "x\ny" })).unwrap();
        assert_eq!(line, "{\"a\":\"x\\ny\",\"version\":1}\n");
        assert!(json_line(&7).is_err());
    }
}
