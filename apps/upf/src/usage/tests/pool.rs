//! Prefix tables for tests without framed routes. Attaching to one takes longer than the rest of a
//! test, so they are shared.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use fastlane::table::{Lpm4Writer, Lpm6Writer};

use crate::rules::layout::table;
use crate::rules::{BoxedWriter, Private};

static FREE4: Mutex<Vec<BoxedWriter<Lpm4Writer>>> = Mutex::new(Vec::new());
static FREE6: Mutex<Vec<BoxedWriter<Lpm6Writer>>> = Mutex::new(Vec::new());

/// Writer that returns to its pool.
struct Pooled<W: 'static> {
    writer: Option<BoxedWriter<W>>,
    home: &'static Mutex<Vec<BoxedWriter<W>>>,
}

impl<W> Deref for Pooled<W> {
    type Target = W;

    fn deref(&self) -> &W {
        self.writer.as_ref().unwrap()
    }
}

impl<W> DerefMut for Pooled<W> {
    fn deref_mut(&mut self) -> &mut W {
        self.writer.as_mut().unwrap()
    }
}

impl<W> Drop for Pooled<W> {
    fn drop(&mut self) {
        let mut free = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.writer.take());
    }
}

fn take<W>(
    home: &'static Mutex<Vec<BoxedWriter<W>>>,
    make: impl FnOnce() -> BoxedWriter<W>,
) -> Box<Pooled<W>> {
    let free = home.lock().unwrap_or_else(PoisonError::into_inner).pop();
    Box::new(Pooled { writer: Some(free.unwrap_or_else(make)), home })
}

pub(super) fn lpm4(memory: &Private) -> BoxedWriter<Lpm4Writer> {
    take(&FREE4, || memory.lpm4(table::FRAMED4).unwrap())
}

pub(super) fn lpm6(memory: &Private) -> BoxedWriter<Lpm6Writer> {
    take(&FREE6, || memory.lpm6(table::FRAMED6).unwrap())
}
