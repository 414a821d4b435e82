//! A bar on standard error for what takes longer than a second.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::protocol::ProgressLine;

/// What ends sooner shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// The progress of one operation.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    bar: Option<ProgressBar>,
    terminal: bool,
}

impl Progress {
    /// Returns a progress that shows nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            bar: None,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Shows where the operation is.
    pub(crate) fn update(&mut self, line: &ProgressLine) {
        if !self.terminal || self.start.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        match line.total {
            Some(total) if bar.length() != Some(total) => {
                bar.set_length(total);
                bar.set_style(style(
                    "{msg} [{bar:30}] {human_pos}/{human_len} ({eta} left)",
                ));
            }
            None if bar.length().is_some() || line.done == 0 => {
                bar.unset_length();
                bar.set_style(style("{spinner} {msg} {human_pos}"));
            }
            _ => {}
        }
        bar.set_position(line.done);
        bar.set_message(line.what.clone());
    }

    /// Removes the bar.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
