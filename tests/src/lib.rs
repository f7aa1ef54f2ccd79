//! Namespaces and processes for the stories.
