"""Pages of HTML with pictures and charts: of a comparison (`page`, `results`), of a restored video
(`report`), of proposed restorations (`variant_sheet`).
"""
