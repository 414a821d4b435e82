//! The daemon's log: one line an event on standard error, with the time.

use std::io::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::{LevelFilter, Log, Metadata, Record};

struct Logger;

static LOGGER: Logger = Logger;

/// Lets this process log to standard error.
pub(crate) fn start() {
    if log::set_logger(&LOGGER).is_ok() {
        let level = std::env::var("BRANCHPOINT_LOG")
            .ok()
            .and_then(|level| level.parse().ok());
        log::set_max_level(level.unwrap_or(LevelFilter::Info));
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        // One write a line, so that lines of several processes do not mix. A full disk must not
        // hurt the daemon, so a line that cannot be written is lost.
        let line = format!(
            "{} {:5} [{}] {}\n",
            utc(now),
            record.level(),
            std::process::id(),
            record.args()
        );
        drop(io::stderr().write_all(line.as_bytes()));
    }

    fn flush(&self) {}
}

/// Returns a time since 1970 as date and time of day.
fn utc(since: Duration) -> String {
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // The calendar repeats every 400 years of 146,097 days. Counted from the first of March of the
    // year 0, leap days fall on the ends of years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    let millis = since.subsec_millis();
    format!(
        "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{millis:03}Z",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(secs)), text);
        }
    }
}
