"""The tables and figures of Utrera et al. (Euro-Par 2012), where folding in place pays, and folding beside bundling."""
