"""Pages of HTML with pictures and charts: of a comparison, of a restored video, of proposed restorations."""
