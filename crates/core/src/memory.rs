//! Memory of frames: the lane's [`Pool`], the regions that frames can lie in, and the copy between
//! regions.

pub(crate) mod copy;
mod pool;
mod region;

pub use pool::{Frame, Pool, PoolError};
pub use region::RegionId;
