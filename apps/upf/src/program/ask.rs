//! `upf sessions`, `upf associations`, `upf trace`: the API of a running slow half, for people.
