//! Styles and lines that both views of `watch` share: the overview and the detail view.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::{Paragraph, Wrap};

use crate::model::id::short_ids;
use crate::report::text::{escape_line, one_line};

/// Styles by meaning. Without colours, styles differ in brightness only.
#[derive(Clone, Copy)]
pub struct Paint {
    pub colored: bool,
    /// True in the selected row, whose style is reversed as a whole.
    pub is_plain: bool,
}

impl Paint {
    fn of(self, color: Color) -> Style {
        match self {
            Paint { is_plain: true, .. } => Style::new(),
            Paint { colored: true, .. } => Style::new().fg(color),
            _ => Style::new().add_modifier(Modifier::BOLD),
        }
    }

    pub fn bad(self) -> Style {
        self.of(Color::Red)
    }

    pub fn live(self) -> Style {
        self.of(Color::Green)
    }

    pub fn late(self) -> Style {
        self.of(Color::Yellow)
    }

    pub fn quiet(self) -> Style {
        if self.is_plain { Style::new() } else { Style::new().add_modifier(Modifier::DIM) }
    }

    pub fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
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

/// Draws text that the user should know about the selected agent, with line breaks.
pub fn draw_note(frame: &mut Frame<'_>, area: Rect, text: &str, style: Style) {
    let text = Text::styled(escape_line(&short_ids(text)).into_owned(), style);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
}
