//! Styles and lines that both views of `watch` share: the overview and the detail view.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Text;
use ratatui::widgets::{Paragraph, Wrap};

use crate::model::id::short_ids;
use crate::report::output::Tone;
use crate::report::text::{escape_line, one_line};

/// Styles by meaning. Without colours, styles differ in brightness only.
#[derive(Clone, Copy)]
pub struct Paint {
    pub colored: bool,
}

impl Paint {
    pub fn of(self, tone: impl Into<Option<Tone>>) -> Style {
        match tone.into() {
            Some(Tone::Good) => self.color(Color::Green),
            Some(Tone::Bad) => self.color(Color::Red),
            Some(Tone::Quiet) => Style::new().dim(),
            Some(Tone::Strong) => Style::new().bold(),
            None => Style::new(),
        }
    }

    pub fn late(self) -> Style {
        self.color(Color::Yellow)
    }

    fn color(self, color: Color) -> Style {
        if self.colored { Style::new().fg(color) } else { Style::new().bold() }
    }
}

/// Escapes untrusted text, and cuts it to one line of `width` columns with its indentation.
pub fn fit(text: &str, width: usize) -> String {
    let indent = (text.len() - text.trim_start_matches(' ').len()).min(width / 2);
    // An escape never shortens a text, so text beyond the width is cut before escaping.
    let text = one_line(&escape_line(&one_line(text, width)), width - indent);
    format!("{:indent$}{text}", "")
}

/// Returns the number of lines of the note below the view. `height`: lines of the screen.
pub fn note_height(height: u16) -> u16 {
    if height < 16 { 1 } else { 4 }
}

/// Draws a note about the selected agent (a question or a problem), with wrapped lines.
pub fn draw_note(frame: &mut Frame<'_>, area: Rect, text: &str, style: Style) {
    let text = Text::styled(escape_line(&short_ids(text)).into_owned(), style);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
}
