mod documents;
mod engines;
mod fake;
mod recipes;
mod sent;
