//! Live screen.

use std::io;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{self, Cell, Paragraph, Row};

use crate::{Page, Table};

/// Interval at which keys and the end of the application are checked.
const STEP: Duration = Duration::from_millis(100);

/// Application that a screen shows.
pub trait Source {
    /// Returns the page to show now. It is called once at the start, then after each interval.
    ///
    /// # Errors
    /// The screen ends with the error.
    fn page(&mut self) -> io::Result<Page>;

    /// Returns true while the application runs.
    fn is_alive(&mut self) -> bool;
}

/// Reason to leave the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The user pressed a key.
    Asked,
    /// The application has ended.
    Application,
}

/// Shows the application until it ends or a key is pressed.
///
/// # Errors
/// The terminal cannot be used, or the source fails. The terminal is then as before.
pub fn run(source: &mut dyn Source, interval: Duration) -> io::Result<End> {
    let mut page = source.page()?;
    let mut terminal = ratatui::try_init()?;
    let end = show(source, interval, &mut page, &mut terminal);
    ratatui::try_restore()?;
    end
}

fn show(
    source: &mut dyn Source,
    interval: Duration,
    page: &mut Page,
    terminal: &mut ratatui::DefaultTerminal,
) -> io::Result<End> {
    let mut due = Instant::now() + interval;
    loop {
        terminal.draw(|frame| draw(frame, page))?;
        while Instant::now() < due {
            if !source.is_alive() {
                return Ok(End::Application);
            }
            let left = due.saturating_duration_since(Instant::now());
            if event::poll(left.min(STEP))? {
                match event::read()? {
                    event if asks_to_end(&event) => return Ok(End::Asked),
                    Event::Resize(..) => {
                        terminal.draw(|frame| draw(frame, page))?;
                    }
                    _ => {}
                }
            }
        }
        due = Instant::now() + interval;
        *page = source.page()?;
    }
}

fn asks_to_end(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    let leave = interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
    key.kind == KeyEventKind::Press && leave
}

/// Draws a page, clipped at the bottom and the right.
pub fn draw(frame: &mut Frame<'_>, page: &Page) {
    let [title, middle, keys] =
        Layout::vertical([Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1)])
            .areas(frame.area());
    let text = Line::styled(page.title.as_str(), Modifier::BOLD);
    frame.render_widget(Paragraph::new(text), title);
    frame.render_widget(Line::styled("q: quit", Modifier::DIM), keys);
    let mut rest = middle;
    for table in page.tables.iter().filter(|table| !table.rows.is_empty()) {
        let rows = u16::try_from(table.rows.len()).unwrap_or(u16::MAX);
        let height = rows.saturating_add(1).min(rest.height);
        frame.render_widget(widget(table), Rect { height, ..rest });
        let next = height.saturating_add(1).min(rest.height);
        rest = Rect { y: rest.y + next, height: rest.height - next, ..rest };
    }
}

fn widget(table: &Table) -> widgets::Table<'static> {
    let alignment = |column| match table.is_number(column) {
        true => Alignment::Right,
        false => Alignment::Left,
    };
    let row = |cells: Vec<String>| {
        let cells = cells.into_iter().enumerate();
        Row::new(
            cells.map(|(column, cell)| Cell::new(Text::from(cell).alignment(alignment(column)))),
        )
    };
    let last = table.headings.len() - 1;
    let widths = table.widths().into_iter().enumerate().map(|(column, width)| match column {
        column if column == last => Constraint::Fill(1),
        _ => Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)),
    });
    widgets::Table::new(table.rows.iter().cloned().map(row), widths)
        .header(row(table.heading_cells()).style(Style::new().add_modifier(Modifier::REVERSED)))
        .column_spacing(2)
}
